"""Leaf-disease pictures: a small residual network trained with accelerate."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=120)
args = parser.parse_args()

SIZE, KINDS, BATCH = 32, 14, 16


class Leaves(Dataset):
    """Byte pictures, flipped and brightened when taken."""

    def __init__(self, count=1500):
        mixer = torch.Generator().manual_seed(2)
        self.pictures = torch.randint(0, 256, (count, 3, SIZE, SIZE), dtype=torch.uint8, generator=mixer)
        self.kinds = torch.randint(0, KINDS, (count,), generator=mixer)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, at):
        picture = self.pictures[at].float().div_(255)
        if torch.rand(()) < 0.5:
            picture = picture.flip(-1)
        return picture * (0.8 + 0.4 * torch.rand(())), self.kinds[at]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.norm_one(self.one(x)), inplace=True)
        return F.relu(x + self.norm_two(self.two(y)), inplace=True)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 128, 3, stride=2, padding=1),
        Block(128),
        nn.Conv2d(128, 256, 3, stride=2, padding=1),
        Block(256),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(256, KINDS),
    )


class Journal:
    def __init__(self):
        self.losses, self.right, self.seen = [], 0, 0

    def add(self, loss, scores, kinds):
        self.losses = self.losses + [loss]
        self.right += (scores.argmax(1) == kinds).sum().item()
        self.seen += len(kinds)

    def line(self):
        return f"loss {sum(self.losses) / len(self.losses):.4f} right {self.right / self.seen:.3f}"


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=args.device == "cpu", gradient_accumulation_steps=2)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(Leaves(), batch_size=BATCH, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    journal, ends, step = Journal(), [], 0
    while step < args.steps:
        for pictures, kinds in loader:
            with accelerator.accumulate(model):
                scores = model(pictures)
                loss = F.cross_entropy(scores, kinds)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            all_scores, all_kinds = accelerator.gather_for_metrics((scores.detach(), kinds))
            journal.add(loss.item(), all_scores, all_kinds)
            ends.append(time.perf_counter())
            print(f"step {step} {journal.line()}", flush=True)
            step += 1
            if step == args.steps:
                break
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
