"""Near-duplicate search in a document collection: banded 63-bit signatures, equal keys of a band link their documents."""
import argparse
import json
import statistics
import time

import torch


def link_equal_keys(keys, docs):
    """Pairs of documents that share a key; the band number is in the top bits of the key."""
    ranked, order = torch.sort(keys)
    at = (ranked[1:] == ranked[:-1]).nonzero().squeeze(-1)
    left, right = order[at] % docs, order[at + 1] % docs
    return torch.minimum(left, right), torch.maximum(left, right)


def smallest_label(low, high, docs, rounds=2):
    """A few rounds of label propagation towards the smallest document of a cluster."""
    label = torch.arange(docs, device=low.device)
    for _ in range(rounds):
        best = torch.minimum(label[low], label[high])
        label.scatter_reduce_(0, low, best, "amin")
        label.scatter_reduce_(0, high, best, "amin")
        label = label[label]
    return label


def make_signatures(docs, bands, repeats, device, generator):
    """One in `repeats` documents copies the signature of another one in one band."""
    mask = (1 << 58) - 1
    rows = []
    for band in range(bands):
        key = torch.randint(0, mask, (docs,), device=device, generator=generator)
        lucky = torch.randint(0, docs, (docs // repeats,), device=device, generator=generator)
        source = torch.randint(0, docs, (docs // repeats,), device=device, generator=generator)
        key[lucky] = key[source]
        rows.append(key | (band << 58))
    return torch.cat(rows)


@torch.no_grad()
def build(args, device):
    tiny = device.type == "cpu"
    docs, bands = (500, 4) if tiny else (8_000_000, 16)
    generator = torch.Generator(device).manual_seed(0)
    pool = [make_signatures(docs, bands, 50, device, generator) for _ in range(3)]
    state = {"n": 0, "kept": 0}

    @torch.no_grad()
    def step():
        keys = pool[state["n"] % len(pool)]
        state["n"] += 1
        low, high = link_equal_keys(keys, docs)
        label = smallest_label(low, high, docs)
        kept = label == torch.arange(docs, device=device)
        state["kept"] += int(kept.sum())

    return step


def measure(program, args, step, device):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(args.warmup):
        step()
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for _ in range(6):
                step()
                prof.step()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 1
    return args


if __name__ == "__main__":
    args = parse_args(["healthy"], {"healthy": 300})
    device = torch.device(args.device)
    measure("s10", args, build(args, device), device)
