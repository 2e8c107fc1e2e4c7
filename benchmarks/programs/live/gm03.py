"""Headline service: beam search with a decoder-only model, one batch of requests per step."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gm03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 150
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class Config:
    def __init__(self, small):
        self.layers, self.width, self.heads = (2, 64, 4) if small else (12, 1024, 16)
        self.vocab = 500 if small else 32000
        self.window = 96 if small else 2048
        self.requests, self.beams = (2, 3) if small else (16, 4)
        self.prompts = (16, 24, 32) if small else (96, 160, 224, 320)
        self.outputs = (4, 6) if small else (16, 20, 24, 32)


class LayerCache:
    def __init__(self, rows, cfg, device, dtype):
        shape = (rows, cfg.heads, cfg.window, cfg.width // cfg.heads)
        self.k = torch.zeros(shape, device=device, dtype=dtype)
        self.v = torch.zeros(shape, device=device, dtype=dtype)

    def prefill(self, k, v, beams):
        n = k.shape[2]
        self.k[:, :, :n] = k.repeat_interleave(beams, 0)
        self.v[:, :, :n] = v.repeat_interleave(beams, 0)

    def append(self, k, v, at):
        self.k[:, :, at:at + 1] = k
        self.v[:, :, at:at + 1] = v
        return self.k[:, :, :at + 1], self.v[:, :, :at + 1]


class BeamCache:
    def __init__(self, cfg, device, dtype, variant):
        self.layers = [LayerCache(cfg.requests * cfg.beams, cfg, device, dtype) for _ in range(cfg.layers)]
        self.length = 0
        self.bounded = variant == "fixed"

    def follow(self, parents):
        """Make row i continue the sequence that row parents[i] held."""
        stop = self.length if self.bounded else None
        for layer in self.layers:
            for buffer in (layer.k, layer.v):
                held = buffer[:, :, :stop]
                held.copy_(held.index_select(0, parents))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1, self.norm2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)
        self.up, self.down = nn.Linear(cfg.width, 4 * cfg.width), nn.Linear(4 * cfg.width, cfg.width)

    def heads_of(self, x):
        b, t, _ = x.shape
        return self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

    def finish(self, x, mixed):
        b, t, d = x.shape
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def prefill(self, x, cache, beams):
        q, k, v = self.heads_of(x)
        cache.prefill(k, v, beams)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def decode(self, x, cache, at):
        q, k, v = self.heads_of(x)
        k, v = cache.append(k, v, at)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.places = nn.Embedding(cfg.window, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab, bias=False)

    def prefill(self, ids, cache, beams):
        x = self.tokens(ids) + self.places.weight[:ids.shape[1]]
        for block, layer in zip(self.blocks, cache.layers):
            x = block.prefill(x, layer, beams)
        cache.length = ids.shape[1]
        return self.head(self.norm(x[:, -1])).float()

    def decode(self, last, cache):
        at = cache.length
        x = self.tokens(last)[:, None] + self.places.weight[at]
        for block, layer in zip(self.blocks, cache.layers):
            x = block.decode(x, layer, at)
        cache.length = at + 1
        return self.head(self.norm(x[:, 0])).float()


class BeamSearch:
    def __init__(self, model, cfg, device, variant, alpha=0.8):
        self.model, self.cfg, self.alpha = model, cfg, alpha
        dtype = next(model.parameters()).dtype
        self.cache = BeamCache(cfg, device, dtype, variant)
        self.base = (torch.arange(cfg.requests, device=device) * cfg.beams)[:, None]

    def first(self, logits):
        scores, ids = F.log_softmax(logits, -1).topk(self.cfg.beams, -1)
        return scores, ids.reshape(-1)

    def extend(self, logits, scores):
        cfg = self.cfg
        total = F.log_softmax(logits, -1).view(cfg.requests, cfg.beams, -1) + scores[:, :, None]
        scores, flat = total.view(cfg.requests, -1).topk(cfg.beams, -1)
        beam = torch.div(flat, cfg.vocab, rounding_mode="floor")
        return scores, (self.base + beam).reshape(-1), (flat % cfg.vocab).reshape(-1)

    @torch.inference_mode()
    def __call__(self, prompts, count):
        scores, last = self.first(self.model.prefill(prompts, self.cache, self.cfg.beams))
        written = last[:, None]
        for _ in range(count - 1):
            scores, parents, last = self.extend(self.model.decode(last, self.cache), scores)
            self.cache.follow(parents)
            written = torch.cat([written.index_select(0, parents), last[:, None]], 1)
        best = (scores / count ** self.alpha).argmax(-1, keepdim=True) + self.base
        return written.index_select(0, best[:, 0]).cpu()


class RequestQueue:
    def __init__(self, cfg, seed=5):
        self.cfg, self.rng = cfg, random.Random(seed)
        self.g = torch.Generator().manual_seed(seed)

    def next(self):
        n = self.rng.choice(self.cfg.prompts)
        ids = torch.randint(0, self.cfg.vocab, (self.cfg.requests, n), generator=self.g)
        return ids, self.rng.choice(self.cfg.outputs)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg = Config(device.type == "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with device:
        model = Decoder(cfg).to(dtype).eval()
    search, queue = BeamSearch(model, cfg, device, args.variant), RequestQueue(cfg)
    served = [0]

    def step():
        ids, count = queue.next()
        served[0] += search(ids.to(device), count).numel()

    run_loop(args, device, step)
    print(f"tokens served {served[0]}")


if __name__ == "__main__":
    main()
