"""Low-batch greedy decoding of short rationales with a recorded device graph."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass
class LMConfig:
    vocab: int = 32000
    dim: int = 8192
    layers: int = 12
    heads: int = 64
    window: int = 128
    batch: int = 4
    burst: int = 4
    eos: int = 2


class KVCache:
    def __init__(self, cfg: LMConfig, device, dtype):
        shape = (cfg.layers, cfg.batch, cfg.heads, cfg.window, cfg.dim // cfg.heads)
        self.k = torch.zeros(shape, device=device, dtype=dtype)
        self.v = torch.zeros(shape, device=device, dtype=dtype)

    def put(self, layer, pos, k, v):
        self.k[layer].index_copy_(2, pos, k)
        self.v[layer].index_copy_(2, pos, v)
        return self.k[layer], self.v[layer]


class Weights:
    def __init__(self, cfg: LMConfig, device, dtype):
        d = cfg.dim

        def rand(*shape):
            return torch.empty(shape, device=device, dtype=dtype).normal_(std=d ** -0.5)

        self.embed = rand(cfg.vocab, d)
        self.position = rand(cfg.window, d)
        self.blocks = [dict(qkv=rand(3 * d, d), out=rand(d, d), up=rand(4 * d, d), down=rand(d, 4 * d),
                            g1=torch.ones(d, device=device, dtype=dtype), g2=torch.ones(d, device=device, dtype=dtype))
                       for _ in range(cfg.layers)]
        self.final = torch.ones(d, device=device, dtype=dtype)


class GreedyDecoder:
    """All state lives in fixed buffers, so that one token is one graph launch."""

    def __init__(self, cfg: LMConfig, device):
        self.cfg, self.device = cfg, device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.w, self.cache = Weights(cfg, device, dtype), KVCache(cfg, device, dtype)
        self.tokens = torch.randint(3, cfg.vocab, (cfg.batch,), device=device)
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        self.slots = torch.arange(cfg.window, device=device)
        self.zero = torch.zeros((), device=device, dtype=dtype)
        self.minus = torch.full((), float("-inf"), device=device, dtype=dtype)
        self.done = torch.zeros(cfg.batch, dtype=torch.bool, device=device)
        self.trail = torch.zeros(cfg.batch, cfg.window, dtype=torch.long, device=device)
        self.graph = None

    def token_step(self):
        cfg, w = self.cfg, self.w
        b, d, h = cfg.batch, cfg.dim, cfg.heads
        x = F.embedding(self.tokens, w.embed) + w.position.index_select(0, self.pos)
        visible = torch.where(self.slots <= self.pos, self.zero, self.minus).expand(b, h, 1, -1)
        for i, p in enumerate(w.blocks):
            q, k, v = F.linear(F.layer_norm(x, (d,), p["g1"]), p["qkv"]).view(b, 3, h, 1, d // h).unbind(1)
            keys, values = self.cache.put(i, self.pos, k, v)
            a = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
            x = torch.addmm(x, a.reshape(b, d), p["out"].t())
            u = F.gelu(F.linear(F.layer_norm(x, (d,), p["g2"]), p["up"]), approximate="tanh")
            x = torch.addmm(x, u, p["down"].t())
        logits = F.linear(F.layer_norm(x, (d,), w.final), w.embed)
        nxt = torch.where(self.done, cfg.eos, logits.argmax(dim=-1))
        self.done.logical_or_(nxt == cfg.eos)
        self.tokens.copy_(nxt)
        self.trail.index_copy_(1, self.pos, nxt[:, None])
        self.pos.add_(1).remainder_(cfg.window)

    def record(self):
        if self.device.type != "cuda":
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.token_step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.token_step()
        self.pos.zero_()

    def advance(self):
        if self.graph is not None:
            self.graph.replay()
        else:
            self.token_step()


class Frontend:
    """Hands tokens to the clients after every burst and refills finished rows."""

    def __init__(self, cfg: LMConfig, device):
        self.cfg, self.decoder, self.sent = cfg, GreedyDecoder(cfg, device), 0
        self.decoder.record()

    def refill(self, finished):
        rows = [i for i, f in enumerate(finished) if f]
        for row in rows:
            self.decoder.done[row] = False
            self.decoder.tokens[row] = 3 + row

    @torch.inference_mode()
    def step(self):
        for _ in range(self.cfg.burst):
            self.decoder.advance()
        finished = self.decoder.done.tolist()
        self.sent += self.cfg.burst * self.cfg.batch
        if any(finished):
            self.refill(finished)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=420)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg = LMConfig() if device.type == "cuda" else LMConfig(vocab=128, dim=64, layers=2, heads=4, window=32, batch=2)
    with torch.inference_mode():
        front = Frontend(cfg, device)
    for _ in range(4):
        front.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    start, laps = time.perf_counter(), []
    for _ in range(args.steps):
        lap = time.perf_counter()
        front.step()
        laps.append(time.perf_counter() - lap)
        if time.perf_counter() - start > args.max_seconds:
            break
    if device.type == "cuda":
        torch.cuda.synchronize()
    total = time.perf_counter() - start
    print(json.dumps({"program": "v10", "variant": args.variant, "steps": len(laps), "step_ms_mean": total / len(laps) * 1e3,
                      "step_ms_median": statistics.median(laps) * 1e3}), flush=True)
    if args.trace:
        A = torch.profiler.ProfilerActivity
        with torch.profiler.profile(activities=[A.CPU] + ([A.CUDA] if device.type == "cuda" else []), record_shapes=True,
                                    with_stack=True, with_modules=True, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                front.step()
                prof.step()


if __name__ == "__main__":
    main()
