"""A small language model under fully_shard, with an averaged copy of its weights."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

VOCAB, DIM, LAYERS, SEQ, BATCH = 512, 320, 2, 32, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, 5, DIM // 5).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, DIM))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Average:
    def __init__(self, model, view, decay=0.999):
        self.model, self.view, self.decay = model, view, decay
        with torch.no_grad():
            self.shadow = {n: view(p).clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name].lerp_(self.view(p), 1 - self.decay)


def whole(p):
    return p.full_tensor() if isinstance(p, DTensor) else p.detach()


def local(p):
    return p.to_local() if isinstance(p, DTensor) else p.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = LM()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    average = Average(model, whole if args.variant == "slow" else local)
    generator = torch.Generator().manual_seed(10 + rank)
    times, total, step = [], args.steps, 0
    while step < total:
        begin = time.perf_counter()
        tokens = torch.randint(0, VOCAB, (BATCH, SEQ + 1), generator=generator)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update()
        step += 1
        times.append(time.perf_counter() - begin)
        if step == 15:
            plan = torch.tensor([args.max_seconds / statistics.mean(times[5:])])
            dist.broadcast(plan, 0)
            total = min(total, max(25, int(plan.item())))
    if rank == 0:
        used = times[15:] or times
        print(json.dumps({"mean_ms": 1e3 * statistics.mean(used), "median_ms": 1e3 * statistics.median(used),
                          "steps": len(times), "loss": loss.item()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
