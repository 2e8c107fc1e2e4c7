"""Two-tower recommender trained with sampled negatives (CPU)."""

import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

USERS, ITEMS, WATCHED, BATCH, NEGATIVES, DIM = 200, 40_000, 4000, 96, 12, 48


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.item = nn.Embedding(ITEMS, DIM, sparse=True)
        self.mix = nn.Sequential(nn.Linear(DIM, 96), nn.ReLU(), nn.Linear(96, DIM))

    def forward(self, users, items):
        u = self.mix(self.user(users))
        return (u[:, None] * self.item(items)).sum(-1)


class Interactions:
    """What each user has watched, and negatives that they have not."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.by_user = []
        for _ in range(USERS):
            self.by_user.append(self.rng.sample(range(ITEMS), WATCHED))
        self.seen = self.by_user
        if args.variant == "fixed":
            self.seen = [frozenset(items) for items in self.by_user]

    def negatives(self, user):
        found = []
        seen = self.seen[user]
        while len(found) < NEGATIVES:
            item = self.rng.randrange(ITEMS)
            if item not in seen:
                found.append(item)
        return found

    def batch(self):
        users, rows = [], []
        for _ in range(BATCH):
            user = self.rng.randrange(USERS)
            users.append(user)
            rows.append([self.rng.choice(self.by_user[user])] + self.negatives(user))
        return torch.tensor(users), torch.tensor(rows)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several jobs share this machine
    data = Interactions(12)
    model = Towers()
    dense = [p for n, p in model.named_parameters() if n != "item.weight"]
    opts = [torch.optim.Adagrad(dense, lr=0.05), torch.optim.SGD([model.item.weight], lr=0.5)]
    first = torch.zeros(BATCH, dtype=torch.long)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        users, items = data.batch()
        loss = F.cross_entropy(model(users, items), first)
        for opt in opts:
            opt.zero_grad()
        loss.backward()
        for opt in opts:
            opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


if __name__ == "__main__":
    main()
