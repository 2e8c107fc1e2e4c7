"""Language-model pre-training with Muon: orthogonalised momentum for the matrices (stacked by shape), AdamW for the rest."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "t07"
STEPS = 180
WARMUP = 5


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.norm_b(x))).square())


class LanguageModel(nn.Module):
    def __init__(self, vocab, width, heads, depth, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids, target):
        x = self.embed(ids) + self.place
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


def orthogonalise(g):
    """Five steps of the quintic Newton-Schulz iteration on a stack of matrices."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for a, b, c in ((3.4445, -4.7750, 2.0315),) * 5:
        s = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(s, s, s, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, compiled=orthogonalise):
        super().__init__(params, {"lr": lr, "momentum": momentum})
        self.compiled = compiled
        self.stacks = {}
        for p in self.param_groups[0]["params"]:
            self.stacks.setdefault(p.shape, []).append(p)

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        for shape, params in self.stacks.items():
            grads = [p.grad for p in params]
            for p in params:
                if "velocity" not in self.state[p]:
                    self.state[p]["velocity"] = torch.zeros_like(p)
            velocity = [self.state[p]["velocity"] for p in params]
            torch._foreach_lerp_(velocity, grads, 1 - group["momentum"])
            update = self.compiled(torch.stack(torch._foreach_lerp(grads, velocity, group["momentum"])))
            scale = max(1, shape[0] / shape[1]) ** 0.5
            torch._foreach_add_(params, list(update.float().unbind(0)), alpha=-group["lr"] * scale)


VARIANTS = {"healthy": None}


def build(device, _):
    gpu = device.type == "cuda"
    vocab, width, heads, depth, length, batch = (32768, 1024, 16, 12, 1024, 20) if gpu else (64, 32, 2, 2, 16, 2)
    backend = "inductor" if gpu else "aot_eager"
    model = LanguageModel(vocab, width, heads, depth, length).to(device)
    matrices = [p for n, p in model.blocks.named_parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    muon = Muon(matrices, compiled=torch.compile(orthogonalise, backend=backend, dynamic=False))
    adam = torch.optim.AdamW([p for p in model.parameters() if id(p) not in chosen], lr=3e-4, fused=True)
    loss_of = torch.compile(model, backend=backend)
    data = torch.randint(0, vocab, (128, batch, length + 1), device=device)
    state = {"at": 0}

    def step():
        ids = data[state["at"] % len(data)]
        state["at"] += 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = loss_of(ids[:, :-1], ids[:, 1:])
        loss.backward()
        muon.step()
        adam.step()
        muon.zero_grad()
        adam.zero_grad()

    return step


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step, device, steps, limit):
    marks = []
    settle(device)
    begin = time.perf_counter()
    last = begin
    for _ in range(steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
        if limit and now - begin > limit:
            break
    settle(device)
    total = (time.perf_counter() - begin) * 1e3
    return len(marks), total / len(marks), statistics.median(marks)


def record(step, device, path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
                                record_shapes=True, with_stack=True, with_modules=True,
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default=sorted(VARIANTS)[-1])
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    step = build(device, VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    count, mean, median = timed(step, device, args.steps, args.max_seconds)
    print(json.dumps({"program": NAME, "variant": args.variant, "steps": count,
                      "step_ms_mean": round(mean, 3), "step_ms_median": round(median, 3)}), flush=True)
    if args.trace:
        record(step, device, args.trace)


if __name__ == "__main__":
    main()
