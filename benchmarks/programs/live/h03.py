"""Pre-training of a wide GPT on a token stream, with gradient accumulation."""

import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=36)
parser.add_argument("--max-seconds", type=float, default=36)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, LAYERS, HEADS, VOCAB = (8192, 3, 64, 32000) if GPU else (64, 2, 2, 256)
BATCH, SEQ, ACCUM = (4, 2048, 4) if GPU else (2, 32, 2)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.zeros(SEQ, DIM))
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, targets):
        x = self.layers(self.tok(ids) + self.pos)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def token_stream(seed):
    """Endless (inputs, targets) pairs cut at random offsets out of one long array."""
    rng = np.random.default_rng(seed)
    data = (rng.zipf(1.3, 2_000_000) % VOCAB).astype(np.uint16)
    while True:
        offs = rng.integers(0, len(data) - SEQ - 1, BATCH)
        rows = []
        for o in offs:
            piece = []
            for token in data[o : o + SEQ + 1].tolist():
                piece.append(token)
            rows.append(piece)
        block = torch.tensor(rows)
        block = block.to(args.device)
        yield block[:, :-1], block[:, 1:]


def learning_rate(step):
    warm = 5
    if step < warm:
        return 1e-4 * (step + 1) / warm
    frac = (step - warm) / max(1, args.steps - warm)
    return 1e-5 + 0.5 * 9e-5 * (1 + math.cos(math.pi * min(frac, 1.0)))


def main():
    torch.manual_seed(1)
    torch.set_default_dtype(DTYPE)
    with torch.device(args.device):
        model = GPT()
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=0.02)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-4,
        betas=(0.9, 0.95),
        fused=GPU,
    )
    stream = token_stream(3)
    begin = time.perf_counter()
    history = []
    for step in range(args.steps):
        for group in opt.param_groups:
            group["lr"] = learning_rate(step)
        total = 0.0
        for _ in range(ACCUM):
            ids, targets = next(stream)
            loss = model(ids, targets) / ACCUM
            loss.backward()
            total += loss.item()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        history.append(total)
        print(f"step {step} loss {total:.4f} norm {float(norm):.3f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    n = len(history)
    print(f"done steps={n} ms_per_step={1e3 * took / n:.2f} loss={history[-1]:.5f}")


main()
