#!/usr/bin/env python
"""Generate answers for a batch of prompts, with stop strings."""
import argparse
import os
import random
import re
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = os.environ.get("TINY") == "1"


class Tokenizer:
    def __init__(self, vocab):
        rng = random.Random(0)
        self.pieces = [("\u2581" if rng.random() < 0.4 else "") + "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(1, 6))) for _ in range(vocab)]
        self.specials = {0, 1, 2}

    def decode(self, ids):
        text = "".join(self.pieces[t] for t in ids if t not in self.specials)
        text = text.replace("\u2581", " ")
        return re.sub(r"\s+([.,!?])", r"\1", text).strip()


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, cache, pos):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        cache[0][:, :, pos : pos + t] = k
        cache[1][:, :, pos : pos + t] = v
        y = F.scaled_dot_product_attention(q, cache[0][:, :, : pos + t], cache[1][:, :, : pos + t], is_causal=t > 1)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocab, d, h, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Layer(d, h) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids, caches, pos):
        x = self.emb(ids)
        for layer, c in zip(self.layers, caches):
            x = layer(x, c, pos)
        return self.head(self.ln(x[:, -1]))


class StopStrings:
    def __init__(self, tokenizer, stops):
        self.tokenizer, self.stops = tokenizer, stops

    def __call__(self, ids):
        done = []
        for row in ids.tolist():
            text = self.tokenizer.decode(row[-16:])
            done.append(any(s in text[-64:] for s in self.stops))
        return torch.tensor(done)


@torch.inference_mode()
def generate(model, prompt, new, criteria, temperature, room):
    n, t = prompt.shape
    p = model.emb.weight
    h = model.layers[0].h
    caches = [[torch.empty(n, h, room, p.shape[1] // h, device=p.device, dtype=p.dtype) for _ in range(2)] for _ in model.layers]
    ids = torch.empty(n, t + new, dtype=torch.long, device=p.device)
    ids[:, :t] = prompt
    logits, done = model(prompt, caches, 0), torch.zeros(n, dtype=torch.bool)
    for k in range(new):
        tok = torch.multinomial((logits.float() / temperature).softmax(-1), 1)
        ids[:, t + k] = tok[:, 0]
        done |= criteria(ids[:, : t + k + 1])
        if done.all():
            break
        logits = model(tok, caches, t + k)
    return ids[:, : t + k + 1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=2 if TINY else 32)
    p.add_argument("--prompt", type=int, default=8 if TINY else 1024)
    p.add_argument("--new", type=int, default=6 if TINY else 384)
    p.add_argument("--rounds", type=int, default=2 if TINY else 100)
    p.add_argument("--max-seconds", type=float, default=14)
    p.add_argument("--stop", nargs="*", default=["</answer>", "###"])
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    vocab, d, h, layers = (64, 32, 2, 1) if TINY else (32000, 2560, 20, 10)
    tokenizer = Tokenizer(vocab)
    with torch.device(device):
        model = Model(vocab, d, h, layers).to(dtype).eval()
    criteria = StopStrings(tokenizer, args.stop)
    start, tokens, r = time.time(), 0, 0
    while r < args.rounds and time.time() - start < args.max_seconds:
        prompt = torch.randint(3, vocab, (args.batch, args.prompt), device=device)
        out = generate(model, prompt, args.new, criteria, 0.9, args.prompt + args.new)
        tokens += args.batch * (out.shape[1] - args.prompt)
        r += 1
        print(f"round {r}: {tokens / (time.time() - start):.0f} tok/s  {tokenizer.decode(out[0, -8:].tolist())!r}", flush=True)


if __name__ == "__main__":
    main()
