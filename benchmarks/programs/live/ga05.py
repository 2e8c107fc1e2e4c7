"""Interactive decoding for a handful of users with a very wide parallel-block transformer."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

PROGRAM = "ga05"
CHOICES = ["healthy"]
DEFAULT_STEPS = 400
WARMUP = 4


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


class Rotary:
    def __init__(self, head_dim, window, device, dtype):
        freq = 10000.0 ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim)
        angle = torch.arange(window, device=device).float()[:, None] * freq
        self.cos = torch.cat([angle.cos(), angle.cos()], dim=-1).to(dtype)
        self.sin = torch.cat([-angle.sin(), angle.sin()], dim=-1).to(dtype)

    def __call__(self, x, position):
        half = x.shape[-1] // 2
        turned = x.roll(half, dims=-1)
        return torch.addcmul(x * self.cos[position], turned, self.sin[position])


class ParallelBlock:
    """Attention and feed-forward read the same normalised input, as in GPT-J."""

    def __init__(self, width, heads, ff, users, window, device, dtype):
        self.heads, self.dim, self.width, self.ff = heads, width // heads, width, ff
        scale = width ** -0.5
        make = lambda *s: torch.empty(*s, device=device, dtype=dtype).normal_(0, scale)
        self.scale = torch.ones(width, device=device, dtype=dtype)
        self.wide = make(3 * width + ff, width)
        self.narrow = make(width, width + ff) * 0.1
        self.keys = torch.zeros(users, heads, window, self.dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, rotary, position):
        users = x.shape[0]
        h = F.rms_norm(x, (self.width,), self.scale)
        qkv, up = F.linear(h, self.wide).split([3 * self.width, self.ff], dim=-1)
        q, k, v = qkv.view(users, 3, self.heads, 1, self.dim).unbind(1)
        self.keys[:, :, position:position + 1] = rotary(k, position)
        self.values[:, :, position:position + 1] = v
        past = slice(0, position + 1)
        y = F.scaled_dot_product_attention(rotary(q, position), self.keys[:, :, past], self.values[:, :, past])
        joined = torch.cat([y.reshape(users, self.width), F.gelu(up, approximate="tanh")], dim=-1)
        return x + F.linear(joined, self.narrow)


class Decoder:
    def __init__(self, layers, width, heads, ff, vocab, users, window, device, dtype):
        self.window = window
        self.embed = torch.randn(vocab, width, device=device, dtype=dtype)
        self.blocks = [ParallelBlock(width, heads, ff, users, window, device, dtype) for _ in range(layers)]
        self.scale = torch.ones(width, device=device, dtype=dtype)
        self.rotary = Rotary(width // heads, window, device, dtype)

    @torch.inference_mode()
    def forward(self, tokens, position):
        x = self.embed[tokens]
        for block in self.blocks:
            x = block.forward(x, self.rotary, position)
        return F.linear(F.rms_norm(x, (x.shape[-1],), self.scale), self.embed)


class Session:
    """Keeps the users' open replies; a reply that hits a stop token starts again."""

    def __init__(self, decoder, users, device, stop=0):
        self.decoder, self.device, self.stop = decoder, device, stop
        self.tokens = torch.arange(1, users + 1, device=device)
        self.position = 0
        self.replies = [[] for _ in range(users)]
        self.finished = 0

    def next_tokens(self):
        logits = self.decoder.forward(self.tokens, self.position)
        self.tokens = logits.argmax(dim=-1)
        for reply, token in zip(self.replies, self.tokens.tolist()):
            if token == self.stop or len(reply) >= 512:
                self.finished += 1
                reply.clear()
            reply.append(token)
        self.position += 1
        if self.position >= self.decoder.window:
            self.position = 0


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    if device.type == "cuda":
        decoder = Decoder(12, 12288, 96, 49152, 32000, 4, 512, device, torch.bfloat16)
        tokens_per_step = 6
    else:
        decoder = Decoder(2, 64, 4, 256, 128, 2, 32, device, torch.float32)
        tokens_per_step = 2
    session = Session(decoder, decoder.blocks[0].keys.shape[0], device)

    def step():
        for _ in range(tokens_per_step):
            session.next_tokens()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
