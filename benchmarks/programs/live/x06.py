"""Batched text generation: prefill of left-padded prompts, then sampled decoding with a preallocated cache."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


class KVCache:
    def __init__(self, layers, batch, heads, max_len, head_dim, device, dtype):
        shape = (layers, batch, heads, max_len, head_dim)
        self.k = torch.zeros(shape, device=device, dtype=dtype)
        self.v = torch.zeros(shape, device=device, dtype=dtype)
        self.max_len = max_len

    def put(self, layer, start, k, v):
        stop = start + k.shape[2]
        self.k[layer, :, :, start:stop] = k
        self.v[layer, :, :, start:stop] = v

    def read(self, layer, span):
        return self.k[layer, :, :, :span], self.v[layer, :, :, :span]


def whole_span(cache, stop):
    return cache.max_len


def block_span(cache, stop, block=128):
    return min(cache.max_len, (stop + block - 1) // block * block)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, dim, heads, index):
        super().__init__()
        self.heads, self.index = heads, index
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, cache, start, bias, cos, sin):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        cache.put(self.index, start, k, v)
        keys, values = cache.read(self.index, bias.shape[-1])
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, heads, depth):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, i) for i in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head_dim = dim // heads

    def forward(self, tokens, cache, start, bias):
        half = self.head_dim // 2
        pos = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        angle = pos[:, None] * torch.exp(torch.arange(half, device=tokens.device) * (-9.21 / half))
        x = self.embed(tokens)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cache, start, bias, cos, sin)
        return self.head(self.norm(x[:, -1]))


class Generator:
    def __init__(self, model, cache, span, device, dtype, prompt_len, new_tokens, vocab, batch):
        self.model, self.cache, self.span = model, cache, span
        self.device, self.dtype = device, dtype
        self.prompt_len, self.new_tokens, self.vocab, self.batch = prompt_len, new_tokens, vocab, batch
        self.pos = None

    def attention_bias(self, start, stop):
        cols = torch.arange(self.span(self.cache, stop), device=self.device)
        rows = torch.arange(start, stop, device=self.device)
        seen = (cols[None, :] <= rows[:, None])[None] & (cols[None, None, :] >= self.pad[:, None, None])
        bias = torch.zeros(seen.shape, device=self.device, dtype=self.dtype)
        return bias.masked_fill_(~seen, -1e4)[:, None]

    def sample(self, logits, k=50):
        top, ids = logits.float().topk(k, dim=-1)
        choice = torch.multinomial(F.softmax(top / 0.8, dim=-1), 1)
        return ids.gather(1, choice)

    def begin(self):
        prompt = torch.randint(self.vocab, (self.batch, self.prompt_len), device=self.device)
        self.pad = torch.randint(0, self.prompt_len // 2, (self.batch,), device=self.device)
        self.token = self.sample(self.model(prompt, self.cache, 0, self.attention_bias(0, self.prompt_len)))
        self.pos = self.prompt_len

    @torch.inference_mode()
    def step(self, i):
        if self.pos is None or self.pos >= self.prompt_len + self.new_tokens:
            self.begin()
        bias = self.attention_bias(self.pos, self.pos + 1)
        self.token = self.sample(self.model(self.token, self.cache, self.pos, bias))
        self.pos += 1


def main():
    args = parse_args(["slow", "fixed"], 500)
    device = torch.device(args.device)
    big = args.device == "cuda"
    vocab, dim, heads, depth, batch, max_len, prompt, new = \
        (32000, 2048, 16, 24, 48, 4096, 128, 256) if big else (128, 32, 2, 2, 2, 512, 16, 8)
    dtype = torch.bfloat16
    torch.manual_seed(0)
    model = Decoder(vocab, dim, heads, depth).to(device, dtype).eval()
    span = {"slow": whole_span, "fixed": block_span}[args.variant]
    with torch.inference_mode():
        cache = KVCache(depth, batch, heads, max_len, dim // heads, device, dtype)
    gen = Generator(model, cache, span, device, dtype, prompt, new, vocab, batch)
    run_steps("x06", args, gen.step, device, warmup=5)


if __name__ == "__main__":
    main()
