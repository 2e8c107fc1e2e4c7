"""Continue a causal-LM run with the Hugging Face Trainer, keeping the run's history on disk."""
import json
import os
import random
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from blocks_e import StepTimes, base_parser


class TokenBlocks(Dataset):
    def __init__(self, n, length, vocab):
        g = torch.Generator().manual_seed(0)
        self.ids = torch.randint(vocab, (n, length), generator=g)

    def __len__(self):
        return self.ids.shape[0]

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def earlier_history(path, entries):
    """The run we continue from was logged every step; recreate its history file."""
    rng = random.Random(0)
    rows = [{"loss": 11.0 * 0.9999 ** i + rng.random(), "grad_norm": rng.random() * 2,
             "learning_rate": 3e-4 * (1 - i / 1e6), "epoch": i / 1000.0, "step": i}
            for i in range(entries)]
    with open(path, "w") as f:
        json.dump(rows, f)


class HistoryCallback(TrainerCallback):
    """Keeps one continuous history across restarts, for the dashboard."""

    def __init__(self, run_dir, history, mode):
        self.state_path = os.path.join(run_dir, "trainer_state.json")
        self.rows_path = os.path.join(run_dir, "history.jsonl")
        self.history, self.mode = history, mode

    def on_train_begin(self, args, state, control, **kw):
        with open(self.history) as f:
            state.log_history = json.load(f)
        state.save_to_json(self.state_path)

    def on_log(self, args, state, control, logs=None, **kw):
        if self.mode == "state":
            state.save_to_json(self.state_path)
        else:
            with open(self.rows_path, "a") as f:
                f.write(json.dumps(state.log_history[-1]) + "\n")


class TimingCallback(TrainerCallback):
    def __init__(self, device, skip):
        self.times, self.skip = StepTimes(device), skip

    def on_step_end(self, args, state, control, **kw):
        if state.global_step == self.skip:
            self.times.begin()
        elif state.global_step > self.skip:
            self.times.tick()

    def on_train_end(self, args, state, control, **kw):
        self.times.finish()


def build_model(tiny):
    if tiny:
        cfg = LlamaConfig(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                          num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64)
    else:
        cfg = LlamaConfig(vocab_size=8192, hidden_size=768, intermediate_size=2048, num_hidden_layers=6,
                          num_attention_heads=12, num_key_value_heads=12, max_position_embeddings=1024)
    cfg.use_cache = False
    return LlamaForCausalLM(cfg), cfg


def main():
    args = base_parser().parse_args()
    steps = min(args.steps, 120)
    torch.manual_seed(0)
    run_dir = tempfile.mkdtemp(prefix="run_")
    history = os.path.join(run_dir, "history.json")
    earlier_history(history, 50 if args.tiny else 3000)
    model, cfg = build_model(args.tiny)
    length, batch = (16, 2) if args.tiny else (512, 16)
    skip = 1 if args.tiny else 5
    train_args = TrainingArguments(
        output_dir=run_dir,
        per_device_train_batch_size=batch,
        max_steps=steps + skip,
        learning_rate=3e-4,
        lr_scheduler_type="cosine",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        bf16=args.device == "cuda",
        use_cpu=args.device == "cpu",
        dataloader_num_workers=0,
    )
    trainer = Trainer(
        model=model,
        args=train_args,
        train_dataset=TokenBlocks(64 if args.tiny else 4096, length, cfg.vocab_size),
        callbacks=[
            HistoryCallback(run_dir, history, "state" if args.variant == "slow" else "rows"),
            TimingCallback(args.device, skip),
        ],
    )
    trainer.train()


if __name__ == "__main__":
    main()
