"""Document classification with early exits: after each compiled stage the documents that are certain enough leave the batch."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "t10"
STEPS = 95
WARMUP = 6


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm_b(x)), approximate="tanh"))


class Stage(nn.Module):
    def __init__(self, width, heads, depth, classes):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.blocks(x)
        return x, self.head(self.norm(x.mean(1)))


class Cascade:
    def __init__(self, vocab, width, heads, stages, depth, classes, device, dtype):
        backend = "inductor" if device.type == "cuda" else "aot_eager"
        self.embed = nn.Embedding(vocab, width).to(device, dtype)
        self.stages = [Stage(width, heads, depth, classes).to(device, dtype).eval() for _ in range(stages)]
        self.classes, self.limits = classes, [None] * stages
        self.run = torch.compile(lambda stage, x: stage(x), backend=backend, dynamic=True)

    @staticmethod
    def margin(logits):
        top = logits.float().softmax(-1).topk(2, -1).values
        return top[:, 0] - top[:, 1]

    @torch.inference_mode()
    def calibrate(self, ids, share):
        """Thresholds with which `share` of the documents that reach a stage leave there."""
        x = self.embed(ids)
        for i, stage in enumerate(self.stages[:-1]):
            x, logits = self.run(stage, x)
            sure = self.margin(logits)
            self.limits[i] = sure.quantile(1 - share).item()
            x = x[sure < self.limits[i]]

    @torch.inference_mode()
    def __call__(self, ids):
        out = torch.empty(len(ids), self.classes, device=ids.device, dtype=torch.float32)
        index = torch.arange(len(ids), device=ids.device)
        x = self.embed(ids)
        for stage, limit in zip(self.stages, self.limits):
            x, logits = self.run(stage, x)
            out[index] = logits.float()
            if limit is None:
                return out
            stay = (self.margin(logits) < limit).nonzero().squeeze(1)
            if len(stay) == 0:
                return out
            x, index = x.index_select(0, stay), index.index_select(0, stay)
        return out


VARIANTS = {"healthy": 0.2}


def build(device, share):
    gpu = device.type == "cuda"
    vocab, width, heads, stages, depth, classes, docs, length = (30000, 1024, 16, 5, 5, 200, 512, 256) if gpu else (90, 32, 2, 3, 1, 7, 16, 8)
    cascade = Cascade(vocab, width, heads, stages, depth, classes, device, torch.bfloat16 if gpu else torch.float32)
    queue = torch.randint(0, vocab, (16, docs, length), device=device)
    cascade.calibrate(queue[0], share)
    state = {"at": 0}

    def step():
        cascade(queue[state["at"] % len(queue)])
        state["at"] += 1

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
