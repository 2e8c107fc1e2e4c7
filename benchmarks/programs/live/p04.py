"""Marks the toxic words of comments: a bidirectional tagger in Lightning."""

import argparse
import logging
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Tagger(L.LightningModule):
    def __init__(self, vocab, width, variant):
        super().__init__()
        self.variant = variant
        self.embed = nn.Embedding(vocab, width)
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.GELU(),
        )
        self.score = nn.Linear(width, 1)
        self.loss = nn.BCEWithLogitsLoss()
        self.auroc = BinaryAUROC()

    def forward(self, words):
        x = self.embed(words).transpose(1, 2)
        return self.score(self.body(x).transpose(1, 2)).squeeze(-1)

    def training_step(self, batch, index):
        words, marks = batch
        logits = self(words)
        loss = self.loss(logits, marks.float())
        self.auroc.update(logits.detach().sigmoid(), marks)
        self.log("loss", loss, prog_bar=True)
        if self.variant == "slow":
            self.log("auroc", self.auroc.compute(), prog_bar=True)
        return loss

    def on_train_epoch_end(self):
        if self.variant == "fixed":
            self.log("auroc", self.auroc.compute(), prog_bar=True)
        self.auroc.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Stopwatch(L.Callback):
    def __init__(self):
        self.marks = []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.marks.append(time.perf_counter())


def comments(count, length, vocab):
    gen = torch.Generator().manual_seed(11)
    words = torch.randint(1, vocab, (count, length), generator=gen)
    marks = (words % 17 == 0).long()
    return TensorDataset(words, marks)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=160)
    args = ap.parse_args()
    L.seed_everything(0, verbose=False)
    torch.set_num_threads(1)

    data = comments(8000, 96, 5000)
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    watch = Stopwatch()
    trainer = L.Trainer(
        accelerator=args.device,
        devices=1,
        max_steps=args.steps,
        max_epochs=100,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[watch],
    )
    trainer.fit(Tagger(5000, 96, args.variant), loader)

    times = [b - a for a, b in zip(watch.marks, watch.marks[1:])]
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
