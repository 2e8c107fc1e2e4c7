"""Tabular autoencoder for payment anomalies, with Lightning."""
import argparse
import logging
import statistics
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Autoencoder(L.LightningModule):
    def __init__(self, columns=512, hidden=1536, code=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                     nn.Linear(hidden, code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, columns))

    def training_step(self, batch, index):
        (rows,) = batch
        rebuilt = self.decoder(self.encoder(rows + 0.05 * torch.randn_like(rows)))
        error = (rebuilt - rows).square()
        loss = error.mean()
        self.log("loss", loss.item(), prog_bar=False)
        self.log("worst", error.mean(1).max(), on_step=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9), "interval": "step"}]


class Clock(L.Callback):
    def __init__(self):
        self.stamps, self.losses = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.losses.append(float(outputs["loss"]))
        self.stamps.append(time.perf_counter())
        if index % 20 == 0:
            print(f"batch {index} loss {self.losses[-1]:.4f}", flush=True)


class WeightWatch(L.Callback):
    def on_before_optimizer_step(self, trainer, module, optimizer):
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                module.log(f"grad/{name}", parameter.grad.abs().max().item())


def payments(rows=16384, columns=512):
    generator = torch.Generator().manual_seed(9)
    factors = torch.randn(rows, 24, generator=generator)
    return torch.tanh(factors @ torch.randn(24, columns, generator=generator) / 5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="healthy", choices=["healthy"])
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    L.seed_everything(0, verbose=False)
    loader = DataLoader(TensorDataset(payments()), batch_size=1024, shuffle=True, num_workers=0, drop_last=True)
    clock = Clock()
    trainer = L.Trainer(max_steps=args.steps, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[clock, WeightWatch()])
    trainer.fit(Autoencoder(), loader)
    times = [(b - a) * 1e3 for a, b in zip(clock.stamps, clock.stamps[1:])][5:]
    print(f"median_step_ms={statistics.median(times):.2f} mean_step_ms={statistics.fmean(times):.2f}")


if __name__ == "__main__":
    main()
