"""Near-duplicate detection: groups documents by the 64-bit signature of each band, keeping the smallest id."""
import argparse
import json
import statistics
import time

import torch


def make_bands(docs, bands, device):
    gen = torch.Generator(device=device).manual_seed(0)
    family = torch.randint(docs * 4 // 5, (docs,), device=device, generator=gen)
    out = []
    for b in range(bands):
        salt = 0x5851F42D4C957F2D + 2 * b
        own = torch.arange(docs, device=device) + docs
        noisy = torch.rand(docs, device=device, generator=gen) < 0.3
        key = torch.where(noisy, own, family) * salt
        key = (key ^ (key >> 29)) * 0x14057B7EF767814F
        out.append(key ^ (key >> 32))
    return out


def smallest_in_group(keys):
    keys, order = torch.sort(keys, stable=True)
    first = torch.ones_like(keys, dtype=torch.bool)
    torch.ne(keys[1:], keys[:-1], out=first[1:])
    group = first.cumsum(0, dtype=torch.int32).sub_(1)
    starts = first.nonzero().squeeze(1)
    leader = order[starts].int()
    label = torch.empty_like(group)
    label[order] = leader[group]
    return label, starts.numel()


class Run:
    def __init__(self, args):
        docs, bands = (40_000_000, 6) if args.device == "cuda" else (20_000, 3)
        self.bands = make_bands(docs, bands, args.device)
        self.ids = torch.arange(docs, device=args.device, dtype=torch.int32)
        self.labels = self.ids.clone()
        self.groups = []
        self.i = 0

    def step(self):
        b = self.i % len(self.bands)
        if b == 0:
            self.labels.copy_(self.ids)
        label, groups = smallest_in_group(self.bands[b])
        torch.minimum(self.labels, label, out=self.labels)
        self.groups.append(groups)
        self.i += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["healthy"], default="healthy")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=900)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    run = Run(args)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(6):
        run.step()
    sync()
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        run.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y10", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if args.device == "cuda" else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                run.step()
                prof.step()


if __name__ == "__main__":
    main()
