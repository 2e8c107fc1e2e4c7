"""Instruction tuning of a small decoder with the Hugging Face Trainer; only answers are learned."""

import argparse
import os
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

IGNORED = -100


class Instructions(Dataset):
    def __init__(self, count, vocab, prompt, answer):
        gen = torch.Generator().manual_seed(7)
        self.tokens = torch.randint(5, vocab, (count, prompt + answer), generator=gen)
        self.prompt = prompt

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        ids = self.tokens[i]
        labels = ids.clone()
        labels[: self.prompt] = IGNORED
        return {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}


class AnswerTrainer(Trainer):
    def __init__(self, *args, variant, **kwargs):
        super().__init__(*args, **kwargs)
        self.variant = variant

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        if self.variant == "slow":
            logits = model(**inputs).logits
            loss = F.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
            )
        else:
            hidden = model.transformer(**inputs).last_hidden_state[:, :-1]
            wanted = labels[:, 1:] != IGNORED
            logits = model.lm_head(hidden[wanted])
            loss = F.cross_entropy(logits, labels[:, 1:][wanted])
        return (loss, {"logits": logits}) if return_outputs else loss


class Clock(TrainerCallback):
    def __init__(self):
        self.marks = []

    def on_step_end(self, args, state, control, **kwargs):
        self.marks.append(time.perf_counter())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=120)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    vocab, prompt, answer = 8000, 80, 16
    config = GPT2Config(
        vocab_size=vocab, n_positions=160, n_embd=64, n_layer=2, n_head=4, use_cache=False, bos_token_id=1, eos_token_id=2
    )
    model = GPT2LMHeadModel(config).to(args.device)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            max_steps=args.steps,
            learning_rate=3e-4,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            use_cpu=args.device == "cpu",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = AnswerTrainer(
            model=model,
            args=settings,
            train_dataset=Instructions(2000, vocab, prompt, answer),
            callbacks=[clock],
            variant=args.variant,
        )
        trainer.train()

    times = [b - a for a, b in zip(clock.marks, clock.marks[1:])]
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
