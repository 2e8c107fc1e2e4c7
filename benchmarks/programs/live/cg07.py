"""Mixture-of-experts layer stack with experts spread over ranks, trained on a token stream."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

D, HIDDEN, EXPERTS, TOKENS, VOCAB = 256, 768, 8, 1536, 2048


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, recv):
        ctx.send, ctx.recv = send, recv
        out = x.new_empty(sum(recv), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), recv, send)
        return out

    @staticmethod
    def backward(ctx, grad):
        back = grad.new_empty(sum(ctx.send), grad.shape[1])
        dist.all_to_all_single(back, grad.contiguous(), ctx.send, ctx.recv)
        return back, None, None


def contiguous(world):
    return [e * world // EXPERTS for e in range(EXPERTS)]


def serpentine(world):
    order = []
    for e in range(EXPERTS):
        lap, seat = divmod(e, world)
        order.append(seat if lap % 2 == 0 else world - 1 - seat)
    return order


class MoE(nn.Module):
    def __init__(self, home, rank, popularity):
        super().__init__()
        self.rank, self.world = rank, dist.get_world_size()
        self.norm = nn.LayerNorm(D)
        self.gate = nn.Linear(D, EXPERTS)
        with torch.no_grad():
            self.gate.weight.mul_(0.5)
            self.gate.bias.copy_(popularity.log())
        by_rank = [[e for e in range(EXPERTS) if home[e] == r] for r in range(self.world)]
        self.mine = by_rank[rank]
        rank_order = [e for group in by_rank for e in group]
        self.register_buffer("slot", torch.argsort(torch.tensor(rank_order)))
        self.up = nn.ParameterList(nn.Parameter(torch.randn(D, HIDDEN) * D**-0.5) for _ in self.mine)
        self.down = nn.ParameterList(nn.Parameter(torch.randn(HIDDEN, D) * HIDDEN**-0.5) for _ in self.mine)

    def forward(self, x):
        h = self.norm(x)
        probs = self.gate(h).softmax(-1)
        expert = torch.multinomial(probs.detach(), 1).squeeze(1)
        weight = probs.gather(1, expert[:, None])
        slot = self.slot[expert]
        order = slot.argsort(stable=True)
        counts = torch.bincount(slot, minlength=EXPERTS)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        send = counts.view(self.world, -1).sum(1).tolist()
        arriving = arriving.view(self.world, -1)
        recv = arriving.sum(1).tolist()
        rows = Exchange.apply(h[order], send, recv)
        pieces = rows.split(arriving.flatten().tolist())
        n = len(self.mine)
        results = [None] * len(pieces)
        for j in range(n):
            group = torch.cat(pieces[j::n])
            y = F.gelu(group @ self.up[j]) @ self.down[j]
            for s, part in enumerate(y.split([p.shape[0] for p in pieces[j::n]])):
                results[s * n + j] = part
        back = Exchange.apply(torch.cat(results), recv, send)
        out = torch.zeros_like(x).index_copy(0, order, back)
        return x + out * weight


class Model(nn.Module):
    def __init__(self, home, rank, layers=2):
        super().__init__()
        popularity = torch.tensor([0.30, 0.22, 0.16, 0.12, 0.08, 0.06, 0.04, 0.02])
        self.tok = nn.Embedding(VOCAB, D)
        self.layers = nn.ModuleList(MoE(home, rank, popularity) for _ in range(layers))
        self.head = nn.Linear(D, 256)

    def forward(self, idx):
        x = self.tok(idx)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def replicated(self):
        return [p for n, p in self.named_parameters() if ".up." not in n and ".down." not in n]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=18)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    home = serpentine(world) if a.variant == "fixed" else contiguous(world)
    net = Model(home, rank)
    for p in net.replicated():
        dist.broadcast(p.data, 0)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(100 + rank)
    times, done = [], False
    began = last = time.perf_counter()
    while not done:
        idx = torch.randint(0, VOCAB, (TOKENS,))
        loss = F.cross_entropy(net(idx), idx % 256)
        opt.zero_grad()
        loss.backward()
        shared = net.replicated()
        late = float(time.perf_counter() - began > a.max_seconds)
        flat = torch.cat([p.grad.flatten() for p in shared] + [torch.tensor([loss.item(), late])])
        dist.all_reduce(flat)
        flat /= world
        for p, g in zip(shared, flat[:-2].split([p.numel() for p in shared])):
            p.grad.copy_(g.view_as(p))
        opt.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        done = len(times) >= a.steps or flat[-1].item() > 0
    t = times[3:] if len(times) > 6 else times
    if rank == 0:
        print(json.dumps({"steps": len(times), "mean_step_ms": 1e3 * statistics.mean(t),
                          "median_step_ms": 1e3 * statistics.median(t), "loss": flat[-2].item()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
