"""Embedding a collection of support tickets with a transformer encoder."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, LAYERS, HEADS, VOCAB, BATCH, LONGEST = (
    (1024, 20, 16, 30000, 64, 512) if GPU else (32, 2, 2, 100, 4, 64)
)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x, keep):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(LONGEST, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])

    def forward(self, ids, mask):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask[:, None, None])
        weights = mask[..., None].to(x.dtype)
        pooled = (x * weights).sum(1) / weights.sum(1)
        return F.normalize(pooled.float(), dim=-1)


class Tokenizer:
    """Stands in for a trained tokenizer: texts are already arrays of ids."""

    def __init__(self, padding):
        self.padding = padding

    def __call__(self, texts):
        kept = [text[:LONGEST] for text in texts]
        if self.padding == "max_length":
            width = LONGEST
        else:
            width = -(-max(len(t) for t in kept) // 8) * 8
        ids = np.zeros((len(kept), width), np.int64)
        mask = np.zeros((len(kept), width), bool)
        for row, text in enumerate(kept):
            ids[row, : len(text)] = text
            mask[row, : len(text)] = True
        return torch.from_numpy(ids), torch.from_numpy(mask)


def tickets(count, seed):
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(LONGEST / 7), 0.6, count), 6, 2 * LONGEST)
    return [rng.integers(1, VOCAB, int(n), dtype=np.int32) for n in lengths]


def batches(texts, by_length):
    order = np.argsort([len(t) for t in texts]) if by_length else np.arange(len(texts))
    starts = np.arange(0, len(texts), BATCH)
    np.random.default_rng(0).shuffle(starts)
    for start in starts:
        chosen = order[start : start + BATCH]
        yield chosen, [texts[i] for i in chosen]


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Encoder().to(args.device, torch.bfloat16 if GPU else torch.float32).eval()
    fixed = args.variant == "fixed"
    tokenizer = Tokenizer(padding="longest" if fixed else "max_length")
    texts = tickets(args.steps * BATCH, 4)
    vectors = torch.zeros(len(texts), DIM)
    begin = time.perf_counter()
    for step, (rows, chunk) in enumerate(batches(texts, by_length=fixed), 1):
        ids, mask = tokenizer(chunk)
        out = model(ids.to(args.device), mask.to(args.device))
        vectors[torch.from_numpy(rows)] = out.cpu()
        if step % 25 == 0:
            print(f"embedded {step * BATCH} tickets", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    spread = vectors.std(0).mean().item()
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={spread:.6f}")


if __name__ == "__main__":
    main()
