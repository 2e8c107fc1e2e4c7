"""Churn prediction from mixed columns with a small feature transformer, in Lightning."""

import argparse
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.utilities import grad_norm
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=350)
args = parser.parse_args()

NUMBERS, KINDS, LEVELS, WIDTH, BATCH = 24, 8, 50, 32, 32


class Columns(nn.Module):
    """One token for each column of the table."""

    def __init__(self):
        super().__init__()
        self.numbers = nn.ModuleList(nn.Linear(1, WIDTH) for _ in range(NUMBERS))
        self.kinds = nn.ModuleList(nn.Embedding(LEVELS, WIDTH) for _ in range(KINDS))

    def forward(self, numbers, kinds):
        tokens = [layer(numbers[:, at : at + 1]) for at, layer in enumerate(self.numbers)]
        tokens += [table(kinds[:, at]) for at, table in enumerate(self.kinds)]
        return torch.stack(tokens, 1)


class Churn(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.columns = Columns()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 1)
        self.ends = []

    def training_step(self, batch, _):
        numbers, kinds, left = batch
        score = self.head(self.body(self.columns(numbers, kinds)).mean(1)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score, left)
        self.log("train_loss", loss)
        return loss

    def on_before_optimizer_step(self, optimizer):
        if args.variant == "slow" or self.global_step % 50 == 0:
            self.log_dict(grad_norm(self, norm_type=2))

    def on_train_batch_end(self, *_):
        self.ends.append(time.perf_counter())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def table(rows=20_000):
    mixer = torch.Generator().manual_seed(1)
    numbers = torch.randn(rows, NUMBERS, generator=mixer)
    kinds = torch.randint(0, LEVELS, (rows, KINDS), generator=mixer)
    left = (numbers[:, :4].sum(1) > 0).float()
    return TensorDataset(numbers, kinds, left)


def main():
    warnings.filterwarnings("ignore")
    L.seed_everything(0, verbose=False)
    model = Churn()
    trainer = L.Trainer(
        accelerator=args.device,
        max_steps=args.steps,
        max_epochs=-1,
        log_every_n_steps=50,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(table(), batch_size=BATCH, shuffle=True, drop_last=True))
    half = model.ends[len(model.ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
