"""Electricity load forecasting with Lightning."""

import json
import statistics
import time

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def make_series(n=4000, length=96, channels=16):
    rng = np.random.default_rng(0)
    t = np.arange(length + 24)
    phase = rng.uniform(0, 6.28, (n, 1, channels))
    x = np.sin(t[None, :, None] * 2 * np.pi / 24 + phase) + 0.1 * rng.standard_normal(
        (n, len(t), channels)
    )
    x = torch.tensor(x, dtype=torch.float32)
    return TensorDataset(x[:, :length], x[:, length:, 0])


class Forecaster(L.LightningModule):
    def __init__(self, channels=16, hidden=160, horizon=24):
        super().__init__()
        self.encoder = nn.GRU(channels, hidden, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Sequential(nn.Linear(hidden, 512), nn.GELU(), nn.Linear(512, horizon))

    def forward(self, x):
        out, _ = self.encoder(x)
        return self.head(self.norm(out[:, -1]))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class ParameterMonitor(L.Callback):
    """Histograms of weights and gradients, to see dead layers early."""

    def __init__(self, path, every_n_steps=1):
        self.file = open(path, "w")
        self.every_n_steps = every_n_steps

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.global_step % self.every_n_steps:
            return
        for name, p in pl_module.named_parameters():
            for kind, value in (("weight", p), ("grad", p.grad)):
                counts, edges = np.histogram(value.detach().numpy(), bins=64)
                self.file.write(
                    json.dumps(
                        {
                            "step": trainer.global_step,
                            "name": name,
                            "kind": kind,
                            "counts": counts.tolist(),
                            "edges": edges.tolist(),
                        }
                    )
                    + "\n"
                )


class Timer(L.Callback):
    def __init__(self):
        self.times, self.last = [], None

    def on_train_batch_end(self, *args):
        now = time.perf_counter()
        if self.last is not None:
            self.times.append(now - self.last)
        self.last = now


def main():
    L.seed_everything(0)
    loader = DataLoader(make_series(), batch_size=32, shuffle=True)
    timer = Timer()
    trainer = L.Trainer(
        max_steps=160,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ParameterMonitor("/tmp/blindcpu_hist.jsonl"), timer],
    )
    t0 = time.perf_counter()
    trainer.fit(Forecaster(), loader)
    print(
        f"median step {statistics.median(timer.times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    main()
