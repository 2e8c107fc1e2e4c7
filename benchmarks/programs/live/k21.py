"""Routing support tickets to teams by the words they contain."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

WORDS, WIDTH, TEAMS, BATCH, LENGTH, WARM = 30_000, 256, 40, 128, 60, 3


class WordSums(nn.Module):
    """Sum of the vectors of all words of a ticket."""

    def __init__(self):
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(WORDS, WIDTH) * 0.05)

    def forward(self, ids):
        counts = torch.zeros(len(ids), WORDS, device=ids.device)
        counts.scatter_add_(1, ids, torch.ones(ids.shape, device=ids.device))
        return counts @ self.vectors


class BagSums(WordSums):
    def forward(self, ids):
        return F.embedding_bag(ids, self.vectors, mode="sum")


class TicketRouter(nn.Module):
    def __init__(self, sums):
        super().__init__()
        self.sums = sums
        self.body = nn.Sequential(
            nn.Linear(WIDTH, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, TEAMS)
        )

    def forward(self, ids):
        return self.body(self.sums(ids))


class Mailbox:
    """Ticket texts, already turned into word numbers; common words have low numbers."""

    def __init__(self, count=4000):
        mixer = torch.Generator().manual_seed(5)
        rank = torch.rand(count, LENGTH, generator=mixer)
        self.ids = (WORDS**rank).long().clamp_(0, WORDS - 1)

    def batch(self):
        return self.ids[torch.randint(len(self.ids), (BATCH,))]


class Teams:
    def __init__(self):
        self.load = torch.zeros(TEAMS, dtype=torch.long)

    def assign(self, scores):
        sure, team = scores.softmax(1).max(1)
        self.load += torch.bincount(team, minlength=TEAMS)
        return sure.mean().item()


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    router = TicketRouter((WordSums if args.variant == "slow" else BagSums)()).to(args.device).eval()
    mailbox, teams = Mailbox(), Teams()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        sure = teams.assign(router(mailbox.batch().to(args.device)).cpu())
        if step % 25 == 0:
            print(f"batch {step} certainty {sure:.4f} busiest {teams.load.argmax().item()}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
