"""Head tuning of a small BERT on ticket routing, with the Hugging Face Trainer."""

import argparse
import json
import os
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

CLASSES, VOCAB = 8, 6000


class Tickets(Dataset):
    """Token ids of synthetic tickets; each class prefers its own part of the vocabulary."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, count)
        self.rows = []
        for label in self.labels:
            n = int(rng.integers(40, 64))
            own = rng.random(n) < 0.35
            ids = np.where(
                own, 200 + label * 500 + rng.integers(0, 500, n), rng.integers(200, VOCAB, n)
            )
            self.rows.append(np.concatenate([[101], ids, [102]]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": int(self.labels[i])}


def pad_batch(samples):
    width = max(len(s["input_ids"]) for s in samples)
    ids = np.zeros((len(samples), width), np.int64)
    mask = np.zeros((len(samples), width), np.int64)
    for r, s in enumerate(samples):
        ids[r, : len(s["input_ids"])] = s["input_ids"]
        mask[r, : len(s["input_ids"])] = 1
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.from_numpy(mask),
        "labels": torch.tensor([s["labels"] for s in samples]),
    }


def build_model():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        num_hidden_layers=5,
        num_attention_heads=8,
        intermediate_size=1024,
        max_position_embeddings=128,
        num_labels=CLASSES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    torch.manual_seed(0)
    return BertForSequenceClassification(config)


def keep_fixed(model, prefixes):
    for name, p in model.named_parameters():
        if name.startswith(prefixes):
            p.requires_grad_(False)
    return model


def head_optimizer(model, lr, decay):
    head = [
        (n, p) for n, p in model.named_parameters() if n.startswith(("bert.pooler", "classifier"))
    ]
    groups = [
        {"params": [p for n, p in head if n.endswith("weight")], "weight_decay": decay},
        {"params": [p for n, p in head if n.endswith("bias")], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr)


class Clock(TrainerCallback):
    def __init__(self, limit, skip=3):
        self.limit, self.skip = limit, skip
        self.times, self.began, self.last = [], None, None

    def on_train_begin(self, args, state, control, **kw):
        self.began = self.last = time.perf_counter()

    def on_step_end(self, args, state, control, **kw):
        now = time.perf_counter()
        if state.global_step > self.skip:
            self.times.append(1e3 * (now - self.last))
        self.last = now
        if now - self.began > self.limit:
            control.should_training_stop = True
        return control


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=110)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--batch", type=int, default=24)
    args = ap.parse_args()
    frozen = ["bert.encoder."]
    if args.variant != "slow":
        frozen.append("bert.embeddings.")
    model = keep_fixed(build_model(), tuple(frozen))
    settings = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="tickets"),
        max_steps=args.steps,
        per_device_train_batch_size=args.batch,
        per_device_eval_batch_size=64,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_num_workers=0,
        remove_unused_columns=False,
        seed=1,
    )
    clock = Clock(args.max_seconds)
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=Tickets(6000, 1),
        eval_dataset=Tickets(128, 2),
        data_collator=pad_batch,
        compute_metrics=accuracy,
        callbacks=[clock],
        optimizers=(head_optimizer(model, 2e-3, 0.01), None),
    )
    trainer.train()
    score = trainer.evaluate()["eval_accuracy"]
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(clock.times),
                "accuracy": round(score, 4),
                "mean_ms": round(float(np.mean(clock.times)), 3),
                "median_ms": round(float(np.median(clock.times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
