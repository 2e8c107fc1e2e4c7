"""Writes recipe texts with a small decoder: one sampled token for every text a step."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache, position):
        b, _, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, 1, 3, self.heads, w // self.heads).unbind(2)
        keys, values = cache
        keys[:, :, position] = k[:, 0]
        values[:, :, position] = v[:, 0]
        a = F.scaled_dot_product_attention(
            q.transpose(1, 2), keys[:, :, : position + 1], values[:, :, : position + 1]
        )
        x = x + self.out(a.transpose(1, 2).reshape(b, 1, w))
        return x + self.ff(self.norm2(x))


class Writer(nn.Module):
    def __init__(self, vocab, width, heads, depth, length):
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)

    def forward(self, token, caches, position):
        x = (self.token(token) + self.place.weight[position]).unsqueeze(1)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, position)
        return self.head(self.norm(x[:, 0]))


def penalise(logits, written, penalty, variant):
    if variant == "slow":
        for row in range(logits.shape[0]):
            for token in set(written[row].tolist()):
                if logits[row, token] > 0:
                    logits[row, token] /= penalty
                else:
                    logits[row, token] *= penalty
        return logits
    seen = logits.gather(1, written)
    return logits.scatter(1, written, torch.where(seen > 0, seen / penalty, seen * penalty))


def sample(logits, k, temperature, generator):
    top, index = logits.topk(k, dim=1)
    choice = torch.multinomial(F.softmax(top / temperature, dim=1), 1, generator=generator)
    return index.gather(1, choice).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=300)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    vocab, width, heads, depth, length, texts = 4000, 128, 4, 3, 96, 8
    model = Writer(vocab, width, heads, depth, length).to(args.device).eval()
    gen = torch.Generator().manual_seed(4)
    times, produced = [], 0
    with torch.inference_mode():
        while len(times) < args.steps:
            shape = (texts, heads, length, width // heads)
            caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(depth)]
            written = torch.randint(0, vocab, (texts, 1), generator=gen)
            for position in range(length):
                start = time.perf_counter()
                logits = model(written[:, -1], caches, position)
                logits = penalise(logits, written, 1.2, args.variant)
                token = sample(logits, 40, 0.8, gen)
                written = torch.cat([written, token.unsqueeze(1)], dim=1)
                times.append(time.perf_counter() - start)
            produced += written.numel()
            print(f"{produced} tokens", flush=True)

    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
