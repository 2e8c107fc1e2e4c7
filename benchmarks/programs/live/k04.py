"""Scoring documents with a mixture-of-experts encoder held on one device."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
WIDTH, HIDDEN, EXPERTS, LAYERS, HEADS = (1024, 2048, 64, 6, 16) if GPU else (32, 64, 8, 2, 4)
LENGTH, BATCH, WORDS = (512, 16, 30_000) if GPU else (16, 4, 100)
TOP, WARM = 2, 4


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)

    def forward(self, x):
        share, chosen = self.gate(x).float().softmax(-1).topk(TOP, -1)
        return (share / share.sum(-1, keepdim=True)).to(x.dtype), chosen


class Experts(nn.Module):
    """Feed-forward experts; every token goes through the two that its router prefers."""

    def __init__(self):
        super().__init__()
        self.router = Router()
        self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, HIDDEN).normal_(0, WIDTH**-0.5))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, WIDTH).normal_(0, HIDDEN**-0.5))

    def forward(self, x):
        flat = x.flatten(0, 1)
        share, chosen = self.router(flat)
        return self.dispatch(flat, share, chosen).view_as(x)

    def dispatch(self, flat, share, chosen):
        result = torch.zeros_like(flat)
        for expert in range(EXPERTS):
            rows, place = torch.where(chosen == expert)
            if rows.numel() == 0:
                continue
            hidden = F.silu(flat[rows] @ self.up[expert]) @ self.down[expert]
            result.index_add_(0, rows, hidden * share[rows, place, None])
        return result


class PackedExperts(Experts):
    def dispatch(self, flat, share, chosen):
        expert, order = chosen.flatten().sort(stable=True)
        counts = torch.bincount(expert, minlength=EXPERTS)
        first = counts.cumsum(0) - counts
        slot = torch.arange(expert.numel(), device=flat.device) - first[expert]
        rows = order // TOP
        packed = flat.new_zeros(EXPERTS, int(counts.max()), WIDTH)
        packed[expert, slot] = flat[rows]
        hidden = torch.bmm(F.silu(torch.bmm(packed, self.up)), self.down)[expert, slot]
        return torch.zeros_like(flat).index_add_(0, rows, hidden * share.flatten()[order, None])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.experts = (Experts if args.variant == "slow" else PackedExperts)()

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.experts(self.second(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.score(x.mean(1)).squeeze(-1)


def build():
    with torch.device(args.device):
        torch.set_default_dtype(torch.bfloat16)
        model = Encoder().eval()
        torch.set_default_dtype(torch.float32)
    return model


def sync():
    if GPU:
        torch.cuda.synchronize()


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model, kept = build(), []
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        ids = torch.randint(WORDS, (BATCH, LENGTH), device=args.device)
        kept.append(model(ids))
        if step % 25 == 0:
            print(f"batch {step} best {torch.cat(kept[-25:]).max().item():.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
