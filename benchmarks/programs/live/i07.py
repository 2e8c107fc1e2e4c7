"""Reranking service: scores query/passage pairs with a graphed encoder."""

import argparse
import time
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=160)
parser.add_argument("--max-seconds", type=float, default=14)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, LAYERS, HEADS, VOCAB, BATCH, LONGEST = (
    (1024, 16, 16, 30000, 16, 512) if GPU else (32, 2, 2, 100, 3, 64)
)
ROUND = 1 if args.variant == "slow" else LONGEST // 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x, keep):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Reranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(LONGEST, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = nn.Linear(DIM, 1)

    def forward(self, ids, lengths):
        t = ids.shape[1]
        keep = torch.arange(t, device=ids.device) < lengths[:, None]
        x = self.tok(ids) + self.pos.weight[:t]
        for layer in self.layers:
            x = layer(x, keep[:, None, None])
        return self.head(x[:, 0]).squeeze(1).float()


class Plan:
    """A recorded forward pass with its static inputs and output."""

    def __init__(self, model, ids, lengths):
        self.ids, self.lengths = ids.clone(), lengths.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                model(self.ids, self.lengths)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = model(self.ids, self.lengths)

    def __call__(self, ids, lengths):
        self.ids.copy_(ids)
        self.lengths.copy_(lengths)
        self.graph.replay()
        return self.out.clone()


class Engine:
    def __init__(self, model, capacity=8):
        self.model, self.capacity = model, capacity
        self.plans = OrderedDict()

    def score(self, ids, lengths):
        if not GPU:
            return self.model(ids, lengths)
        shape = tuple(ids.shape)
        plan = self.plans.get(shape)
        if plan is None:
            if len(self.plans) >= self.capacity:
                self.plans.popitem(last=False)
            plan = self.plans[shape] = Plan(self.model, ids, lengths)
        self.plans.move_to_end(shape)
        return plan(ids, lengths)


def requests(seed):
    """Groups of passages retrieved for one query."""
    rng = np.random.default_rng(seed)
    while True:
        top = int(rng.integers(LONGEST // 4, LONGEST + 1))
        yield [rng.integers(1, VOCAB, int(n)) for n in rng.integers(top // 2, top + 1, BATCH)]


def collate(rows):
    lengths = [len(r) for r in rows]
    width = -(-max(lengths) // ROUND) * ROUND
    ids = np.zeros((len(rows), width), np.int64)
    for target, row in zip(ids, rows):
        target[: len(row)] = row
    return torch.from_numpy(ids).to(args.device), torch.tensor(lengths, device=args.device)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Reranker().to(args.device, torch.bfloat16 if GPU else torch.float32).eval()
    engine = Engine(model)
    begin = time.perf_counter()
    total = 0.0
    for step, rows in enumerate(requests(2), 1):
        scores = engine.score(*collate(rows)).cpu()
        total += float(scores.max())
        if step % 20 == 0:
            print(f"query {step} mean best {total / step:.4f}", flush=True)
        if step >= args.steps or time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={total / step:.5f}")


if __name__ == "__main__":
    main()
