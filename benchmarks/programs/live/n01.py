"""Keyword spotting from log-mel features with the Hugging Face Trainer."""

import argparse
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import ASTConfig, ASTForAudioClassification, Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=160)
args = parser.parse_args()

FRAMES, MELS, WORDS, BATCH = 256, 64, 35, 24


class SpokenWords(Dataset):
    """Clips held as log-mel arrays, with a little noise added each time one is taken."""

    def __init__(self, clips=600):
        self.random = np.random.default_rng(3)
        self.mels = self.random.standard_normal((clips, FRAMES, MELS)).astype(np.float32)
        self.words = self.random.integers(0, WORDS, clips)
        self.noise = self.random.standard_normal((16, FRAMES, MELS)).astype(np.float32) * 0.05

    def __len__(self):
        return len(self.mels)

    def __getitem__(self, at):
        noisy = self.mels[at] + self.noise[at % 16]
        return {"input_values": noisy, "labels": int(self.words[at])}


class PlainCollator:
    def __call__(self, clips):
        return {
            "input_values": torch.tensor([clip["input_values"] for clip in clips]),
            "labels": torch.tensor([clip["labels"] for clip in clips]),
        }


class StackingCollator:
    def __call__(self, clips):
        return {
            "input_values": torch.from_numpy(np.stack([clip["input_values"] for clip in clips])),
            "labels": torch.tensor([clip["labels"] for clip in clips]),
        }


class Clock(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, arguments, state, control, **kept):
        self.ends.append(time.perf_counter())


def main():
    torch.manual_seed(0)
    config = ASTConfig(
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        max_length=FRAMES,
        num_mel_bins=MELS,
        num_labels=WORDS,
        frequency_stride=16,
        time_stride=16,
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=ASTForAudioClassification(config),
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=BATCH,
                max_steps=args.steps,
                logging_steps=20,
                save_strategy="no",
                report_to=[],
                use_cpu=args.device == "cpu",
                disable_tqdm=True,
                learning_rate=3e-4,
            ),
            train_dataset=SpokenWords(),
            data_collator=PlainCollator() if args.variant == "slow" else StackingCollator(),
            callbacks=[clock],
        )
        trainer.train()
    half = clock.ends[len(clock.ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
