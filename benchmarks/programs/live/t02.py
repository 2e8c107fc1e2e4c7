"""Feature service of a recommender: long click histories are read from a 61 GB item table, pooled into interests and encoded."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "t02"
STEPS = 1250
WARMUP = 5


class InterestEncoder(nn.Module):
    """Each user: interests = learned position weights x rows of the last clicked items, then a small tower."""

    def __init__(self, rows, width, history, interests, device):
        super().__init__()
        self.table = nn.Parameter(torch.empty(rows, width, device=device, dtype=torch.bfloat16), requires_grad=False)
        for part in self.table.data.split(4_000_000):
            part.normal_(0, 0.05)
        self.mixing = nn.Parameter(torch.softmax(torch.randn(interests, history, device=device), -1).bfloat16())
        self.tower = nn.Sequential(nn.Linear(interests * width, 1024), nn.ReLU(inplace=True),
                                   nn.Linear(1024, 512), nn.ReLU(inplace=True), nn.Linear(512, 128)).to(device, torch.bfloat16)

    def forward(self, ids):
        rows = F.embedding(ids, self.table)
        interests = torch.bmm(self.mixing.expand(len(rows), -1, -1), rows)
        return F.normalize(self.tower(interests.flatten(1)), dim=-1)


def serve(device, _):
    gpu = device.type == "cuda"
    rows, width, history, interests, users = (120_000_000, 256, 200, 8, 61440) if gpu else (5000, 16, 10, 4, 32)
    model = InterestEncoder(rows, width, history, interests, device).eval()
    queue = [torch.randint(0, rows, (users, history), device=device) for _ in range(8)]
    out = torch.empty(users, 128, device=device, dtype=torch.bfloat16)
    state = {"at": 0}

    @torch.inference_mode()
    def step():
        out.copy_(model(queue[state["at"] % len(queue)]))
        state["at"] += 1

    return step


VARIANTS = {"healthy": None}
build = serve


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
