"""Credit-default model on tabular data with Lightning: embeddings plus a residual MLP."""
import argparse
import csv
import json
import logging
import os
import statistics
import tempfile
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class LoanTable(Dataset):
    """Fetches a whole batch of rows at once."""

    def __init__(self, rows, numeric=80, categories=(12, 50, 300, 1000), seed=0):
        g = torch.Generator().manual_seed(seed)
        self.numeric = torch.randn(rows, numeric, generator=g)
        self.codes = torch.stack([torch.randint(0, c, (rows,), generator=g) for c in categories], 1)
        w = torch.randn(numeric, generator=g) / numeric ** 0.5
        self.target = ((self.numeric @ w + 0.3 * torch.randn(rows, generator=g)) > 0.5).float()

    def __len__(self):
        return len(self.target)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.numeric[rows], self.codes[rows], self.target[rows]


class ResidualBlock(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return x + self.drop(self.down(F.relu(self.up(self.norm(x)))))


class DefaultModel(L.LightningModule):
    def __init__(self, numeric=80, categories=(12, 50, 300, 1000), width=384, depth=4):
        super().__init__()
        self.emb = nn.ModuleList(nn.Embedding(c, 16) for c in categories)
        self.inp = nn.Linear(numeric + 16 * len(categories), width)
        self.blocks = nn.Sequential(*[ResidualBlock(width, 0.1) for _ in range(depth)])
        self.out = nn.Linear(width, 1)
        self.register_buffer("pos_weight", torch.tensor(2.0))

    def forward(self, numeric, codes):
        cats = [e(codes[:, i]) for i, e in enumerate(self.emb)]
        return self.out(self.blocks(self.inp(torch.cat([numeric, *cats], 1)))).squeeze(1)

    def training_step(self, batch, batch_idx):
        numeric, codes, target = batch
        logits = self(numeric, codes)
        loss = F.binary_cross_entropy_with_logits(logits, target, pos_weight=self.pos_weight)
        hit = ((logits > 0).float() == target).float().mean()
        self.log_dict({"loss": loss, "hit": hit}, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-2)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 500)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Journal(L.Callback):
    """Writes one line a step, and times it."""

    def __init__(self, path, max_seconds):
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.times, self.max_seconds, self.losses = [], max_seconds, []
        self.begin = self.last = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        loss = outputs["loss"].item()
        self.losses.append(loss)
        lr = trainer.optimizers[0].param_groups[0]["lr"]
        self.writer.writerow([trainer.global_step, f"{loss:.5f}", f"{lr:.3e}"])
        self.file.flush()
        now = time.perf_counter()
        self.times.append((now - self.last) * 1e3)
        self.last = now
        if now - self.begin > self.max_seconds:
            trainer.should_stop = True

    def on_train_end(self, trainer, module):
        self.file.close()


class KeepLatest(L.Callback):
    def __init__(self, path, every):
        self.path, self.every = path, every

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % self.every == 0:
            torch.save(module.state_dict(), self.path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="healthy", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--rows", type=int, default=200_000)
    args = p.parse_args()
    L.seed_everything(1, verbose=False)
    data = LoanTable(args.rows)
    sampler = BatchSampler(RandomSampler(data), args.batch, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None, num_workers=0)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(os.path.join(folder, "log.csv"), args.max_seconds)
        trainer = L.Trainer(max_steps=args.steps, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
                            callbacks=[journal, KeepLatest(os.path.join(folder, "last.pt"), 50)])
        trainer.fit(DefaultModel(), loader)
    t = journal.times[5:] or journal.times
    print(json.dumps({"steps": len(journal.times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "loss": round(journal.losses[-1], 4)}))


if __name__ == "__main__":
    main()
