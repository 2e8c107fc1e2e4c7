"""Exact paragraph deduplication of corpus shards by 64-bit content hash, first occurrence kept."""
import argparse
import json
import statistics
import time

import torch

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


def make_batch(shards, paragraphs, device):
    """64-bit content hashes, one row a language shard; some paragraphs repeat."""
    hashes = torch.randint(-2 ** 63, 2 ** 63 - 1, (shards, paragraphs), device=device)
    copies = paragraphs // 50
    source = torch.randint(0, paragraphs, (copies,), device=device)
    target = torch.randint(0, paragraphs, (copies,), device=device)
    hashes[:, target] = hashes[:, source]
    return hashes


def later_copies(hashes):
    ordered, owner = torch.sort(hashes, dim=1, stable=True)
    same = ordered[:, 1:] == ordered[:, :-1]
    shard, where = same.nonzero(as_tuple=True)
    return shard, owner[shard, where + 1]


def main():
    args = parse_args(["healthy"], 700)
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    shards, paragraphs = (20, 4_000_000) if gpu else (4, 2000)
    batches = [make_batch(shards, paragraphs, device) for _ in range(3)]
    keep = torch.ones(shards, paragraphs, dtype=torch.bool, device=device)
    removed = []
    count = 0

    @torch.inference_mode()
    def step():
        nonlocal count
        hashes = batches[count % len(batches)]
        count += 1
        shard, paragraph = later_copies(hashes)
        keep.fill_(True)
        keep[shard, paragraph] = False
        removed.append(shard.numel())

    run_loop("o21", args, step)


if __name__ == "__main__":
    main()
