"""Training a keyword spotter on spectrograms with a regular validation pass."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, SequentialSampler

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
WIDTH, LAYERS, HEADS, FRAMES, BATCH = (512, 8, 8, 100, 128) if GPU else (32, 2, 4, 10, 8)
CLIPS, HELD_OUT, BANDS, LABELS = (2048, 256, 80, 35) if GPU else (64, 8, 20, 5)
WARM = 4
CONFIG = {
    "learning_rate": 3e-4,
    "train_batch": BATCH,
    "valid_batch": 1 if args.variant == "slow" else 64,
    "valid_every": 10,
    "print_every": 50,
}


class Clips:
    """Log-mel clips of spoken words, all on the device."""

    def __init__(self, count):
        self.labels = torch.randint(LABELS, (count,), device=args.device)
        shape = torch.randn(LABELS, FRAMES, BANDS, generator=torch.Generator().manual_seed(1)).to(args.device)
        self.frames = shape[self.labels] + torch.randn(count, FRAMES, BANDS, device=args.device)

    def __len__(self):
        return len(self.labels)

    def take(self, rows):
        return self.frames[rows], self.labels[rows]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Linear(BANDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, LABELS)

    def forward(self, frames):
        x = self.inlet(frames)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Trainer:
    def __init__(self):
        self.model = Spotter().to(args.device, torch.bfloat16)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=CONFIG["learning_rate"], fused=GPU)
        self.train_set, self.valid_set = Clips(CLIPS), Clips(HELD_OUT)
        self.valid_rows = list(BatchSampler(SequentialSampler(range(HELD_OUT)), CONFIG["valid_batch"], False))

    def fit_batch(self):
        rows = torch.randint(len(self.train_set), (CONFIG["train_batch"],), device=args.device)
        frames, labels = self.train_set.take(rows)
        loss = F.cross_entropy(self.model(frames.bfloat16()).float(), labels)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        right = torch.zeros((), device=args.device)
        for rows in self.valid_rows:
            frames, labels = self.valid_set.take(slice(rows[0], rows[-1] + 1))
            right += (self.model(frames.bfloat16()).argmax(1) == labels).sum()
        self.model.train()
        return right.item() / len(self.valid_set)

    def step(self, index):
        loss = self.fit_batch()
        if index % CONFIG["valid_every"] == 0:
            share = self.validate()
            if index % CONFIG["print_every"] == 0:
                print(f"step {index} loss {loss.item():.4f} valid {share:.3f}", flush=True)


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    trainer = Trainer()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        trainer.step(step)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
