"""Implicit-feedback recommender: user and item embeddings, an MLP on top."""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Interactions(Dataset):
    def __init__(self, n_users, n_items, n=400_000, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.users = torch.randint(n_users, (n,), generator=g)
        self.items = torch.randint(n_items, (n,), generator=g)
        self.labels = ((self.users * 7 + self.items * 13) % 5 < 2).float()

    def __len__(self):
        return len(self.users) // 2048

    def __getitem__(self, i):
        s = slice(i * 2048, (i + 1) * 2048)
        return self.users[s], self.items[s], self.labels[s]


class Recommender(nn.Module):
    def __init__(self, n_users, n_items, dim=48):
        super().__init__()
        self.user_embedding = nn.Embedding(n_users, dim)
        self.item_embedding = nn.Embedding(n_items, dim)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, users, items):
        x = torch.cat([self.user_embedding(users), self.item_embedding(items)], dim=1)
        return self.mlp(x).squeeze(1)


class Trainer:
    def __init__(self, model, loader, lr=1e-3):
        self.model = model
        self.loader = loader
        self.criterion = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.times = []

    def train_step(self, users, items, labels):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(users, items), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, epochs):
        step = 0
        for epoch in range(epochs):
            last = time.perf_counter()
            for users, items, labels in self.loader:
                loss = self.train_step(users, items, labels)
                now = time.perf_counter()
                self.times.append(now - last)
                last = now
                if step % 50 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
                step += 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=1)
    ap.add_argument("--users", type=int, default=150_000)
    ap.add_argument("--items", type=int, default=50_000)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Interactions(args.users, args.items)
    loader = DataLoader(data, batch_size=None, shuffle=True)
    trainer = Trainer(Recommender(args.users, args.items), loader)
    t0 = time.perf_counter()
    trainer.fit(args.epochs)
    print(
        f"median step {statistics.median(trainer.times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    main()
