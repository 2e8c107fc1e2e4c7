"""Heartbeat classification with an orthogonal recurrent cell, in Lightning."""

import argparse
import logging
import time
import warnings
from contextlib import nullcontext

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()


class OrthogonalCell(nn.Module):
    """h' = tanh(U h + W x) with an orthogonal U, so that gradients neither vanish nor explode."""

    def __init__(self, inputs, width):
        super().__init__()
        self.inp = nn.Linear(inputs, width)
        self.rec = parametrizations.orthogonal(nn.Linear(width, width, bias=False))

    def forward(self, x, h):
        return torch.tanh(self.rec(h) + self.inp(x))


class Beats(L.LightningModule):
    def __init__(self, leads=12, width=64, classes=5):
        super().__init__()
        self.cell = OrthogonalCell(leads, width)
        self.width = width
        self.head = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, signal):
        h = signal.new_zeros(signal.size(0), self.width)
        once = parametrize.cached() if args.variant == "fixed" else nullcontext()
        with once:
            for t in range(signal.size(1)):
                h = self.cell(signal[:, t], h)
        return self.head(h)

    def training_step(self, batch, _):
        signal, label = batch
        loss = F.cross_entropy(self(signal), label)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Clock(L.Callback):
    def __init__(self):
        self.times, self.last = [], None

    def on_train_batch_end(self, *_):
        now = time.perf_counter()
        if self.last is not None:
            self.times.append(now - self.last)
        self.last = now


def main():
    L.seed_everything(0, verbose=False)
    signals = torch.randn(4096, 12, 12)
    labels = torch.randint(0, 5, (4096,))
    loader = DataLoader(TensorDataset(signals, labels), batch_size=64, shuffle=True)
    clock = Clock()
    trainer = L.Trainer(
        max_steps=args.steps,
        max_epochs=-1,
        accelerator=args.device,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Beats(), loader)
    half = clock.times[len(clock.times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


main()
