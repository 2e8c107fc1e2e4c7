"""Next-click prediction from a log of visits, read line by line by loader workers."""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=500)
args = parser.parse_args()

PAGES, LENGTH, BATCH, WORKERS, WIDTH = 5000, 40, 64, 2, 64


def write_log(path, visits=6000):
    pick = random.Random(8)
    with path.open("w") as out:
        for visit in range(visits):
            clicks = [
                {"page": f"/p/{pick.randrange(PAGES)}", "after_ms": pick.randrange(60_000), "how": "link"}
                for _ in range(LENGTH + 1)
            ]
            out.write(json.dumps({"visit": visit, "agent": "browser", "clicks": clicks}) + "\n")


class Visits(IterableDataset):
    def __init__(self, path):
        self.path = path

    def parse(self, line):
        clicks = json.loads(line)["clicks"]
        pages = [int(click["page"].rpartition("/")[2]) for click in clicks]
        waits = [click["after_ms"] / 60_000 for click in clicks]
        return torch.tensor(pages), torch.tensor(waits)

    def lines(self):
        while True:
            with open(self.path) as log:
                yield from log

    def __iter__(self):
        info = get_worker_info()
        part, parts = (info.id, info.num_workers) if info else (0, 1)
        if args.variant == "slow":
            for at, visit in enumerate(map(self.parse, self.lines())):
                if at % parts == part:
                    yield visit
        else:
            for at, line in enumerate(self.lines()):
                if at % parts == part:
                    yield self.parse(line)


class NextPage(nn.Module):
    def __init__(self):
        super().__init__()
        self.pages = nn.Embedding(PAGES, WIDTH)
        self.wait = nn.Linear(1, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, PAGES // 10))

    def forward(self, pages, waits):
        return self.body((self.pages(pages) + self.wait(waits[..., None])).mean(1))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "visits.jsonl"
        write_log(log)
        loader = DataLoader(Visits(log), batch_size=BATCH, num_workers=WORKERS)
        model = NextPage().to(args.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ends = []
        for step, (pages, waits) in enumerate(loader):
            loss = F.cross_entropy(model(pages[:, :-1], waits[:, :-1]), pages[:, -1] // 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ends.append(time.perf_counter())
            if step % 100 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step + 1 == args.steps:
                break
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
