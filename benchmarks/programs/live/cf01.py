"""Intent router: reads a conversation, answers with a short label sequence."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, DIM, HEADS, LAYERS, CONTEXT = 32000, 256, 4, 4, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x, cache, pos):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        cache[0][:, :, pos : pos + t] = k
        cache[1][:, :, pos : pos + t] = v
        k, v = cache[0][:, :, : pos + t], cache[1][:, :, : pos + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids, caches, pos):
        t = ids.shape[1]
        x = self.tok(ids) + self.pos(torch.arange(pos, pos + t))
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, pos)
        if args.variant == "fixed":
            x = x[:, -1:]
        return self.head(self.norm(x))


class Engine:
    def __init__(self, model, batch):
        self.model = model.eval()
        shape = (batch, HEADS, CONTEXT, DIM // HEADS)
        self.caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(LAYERS)]

    @torch.inference_mode()
    def answer(self, ids, length):
        pos, out = 0, []
        for _ in range(length):
            logits = self.model(ids, self.caches, pos)
            pos += ids.shape[1]
            ids = logits[:, -1].argmax(-1, keepdim=True)
            out.append(ids)
        return torch.cat(out, 1)


def requests(batch):
    g = torch.Generator().manual_seed(1)
    while True:
        t = int(torch.randint(120, 160, (1,), generator=g))
        yield torch.randint(0, VOCAB, (batch, t), generator=g)


engine = Engine(Router(), 1)
times, replies, begin = [], [], time.perf_counter()
for step, ids in enumerate(requests(1)):
    if step >= args.steps or time.perf_counter() - begin > args.max_seconds:
        break
    t0 = time.perf_counter()
    labels = engine.answer(ids, 3)
    replies.append(labels.tolist())
    times.append((time.perf_counter() - t0) * 1e3)
t = sorted(times[3:])
print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
