"""Two-tower retrieval model with popularity-based negatives."""
import argparse
import logging

import torch
from torch import nn
import torch.nn.functional as F

from blocks_f import Meter, parse, torch_sync

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")


class Negatives:
    """Draws item ids in proportion to popularity ** 0.75."""

    def __init__(self, popularity, count, mode):
        self.weights = popularity.pow(0.75)
        self.count = count
        self.draw = {"slow": self._draw_a, "fixed": self._draw_b}[mode]

    def _draw_a(self, users):
        return torch.multinomial(self.weights.expand(users, -1), self.count)

    def _draw_b(self, users):
        return torch.multinomial(self.weights, users * self.count, replacement=True).view(users, self.count)


class Tower(nn.Module):
    def __init__(self, n, dim, out):
        super().__init__()
        self.table = nn.Embedding(n, dim)
        nn.init.normal_(self.table.weight, std=0.05)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * out), nn.ReLU(), nn.Linear(2 * out, out))

    def forward(self, ids):
        return F.normalize(self.mlp(self.table(ids)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, n_users, n_items, dim=64, out=64):
        super().__init__()
        self.user = Tower(n_users, dim, out)
        self.item = Tower(n_items, dim, out)
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, users, positives, negatives):
        u = self.user(users)
        ids = torch.cat([positives[:, None], negatives], dim=1)
        v = self.item(ids)
        return self.scale * torch.einsum("bd,bnd->bn", u, v)


def batches(n_users, n_items, size, device, n=16):
    users = torch.randint(0, n_users, (n, size), device=device)
    items = torch.randint(0, n_items, (n, size), device=device)
    return list(zip(users, items))


def fit(args: argparse.Namespace):
    device = torch.device(args.device)
    n_users, n_items, size, neg = (200, 300, 16, 4) if args.tiny else (100_000, 120_000, 8192, 16)
    torch.manual_seed(4)
    popularity = 1.0 / torch.arange(1, n_items + 1, device=device, dtype=torch.float32)
    negatives = Negatives(popularity, neg, args.variant)
    model = TwoTower(n_users, n_items).to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02, foreach=True)
    data = batches(n_users, n_items, size, device)
    label = torch.zeros(size, dtype=torch.long, device=device)

    def one(i):
        users, items = data[i % len(data)]
        logits = model(users, items, negatives.draw(size))
        loss = F.cross_entropy(logits, label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    for i in range(4):
        one(i)
    meter = Meter(torch_sync(device))
    for i in meter.loop(args.steps):
        loss = one(i)
        if (i + 1) % 80 == 0:
            logging.info("batch %d  loss %.4f", i + 1, loss.item())
    meter.report()


if __name__ == "__main__":
    fit(parse(["slow", "fixed"]))
