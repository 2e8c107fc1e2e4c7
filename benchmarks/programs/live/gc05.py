"""Document scoring service: requests of changing shape pass through an encoder with a fused norm kernel."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

PROGRAM = "gc05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 420
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
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


def time_kernel(call, quantiles=None, **_):
    return triton.testing.do_bench(call, warmup=2, rep=8, quantiles=quantiles)


def build_add_norm(key):
    configs = [triton.Config({}, num_warps=w) for w in (2, 4, 8, 16)]

    @triton.autotune(configs=configs, key=key, do_bench=time_kernel)
    @triton.jit
    def add_norm_kernel(x_ptr, res_ptr, weight_ptr, sum_ptr, out_ptr, n_rows, n_cols, eps, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        cols = tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
        r = tl.load(res_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
        s = x + r
        scale = 1.0 / tl.sqrt(tl.sum(s * s, axis=0) / n_cols + eps)
        w = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(sum_ptr + row * n_cols + cols, s.to(sum_ptr.dtype.element_ty), mask=mask)
        tl.store(out_ptr + row * n_cols + cols, (s * scale * w).to(out_ptr.dtype.element_ty), mask=mask)

    def add_norm(x, residual, weight, eps=1e-6):
        rows, cols = x.numel() // x.shape[-1], x.shape[-1]
        total, out = torch.empty_like(x), torch.empty_like(x)
        add_norm_kernel[(rows,)](x, residual, weight, total, out, rows, cols, eps, BLOCK=triton.next_power_of_2(cols))
        return total, out

    return add_norm


def add_norm_plain(x, residual, weight, eps=1e-6):
    total = x + residual
    return total, F.rms_norm(total, (total.shape[-1],), weight, eps)


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, add_norm):
        super().__init__()
        self.heads, self.add_norm = heads, add_norm
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)
        self.w_attn = nn.Parameter(torch.ones(dim))
        self.w_mlp = nn.Parameter(torch.ones(dim))

    def forward(self, x, residual):
        residual, h = self.add_norm(x, residual, self.w_attn)
        b, t, c = h.shape
        q, k, v = self.qkv(h).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        residual, h = self.add_norm(self.out(a), residual, self.w_mlp)
        return self.down(F.gelu(self.up(h))), residual


class Scorer(nn.Module):
    def __init__(self, vocab, dim, depth, add_norm):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([EncoderLayer(dim, dim // 64, add_norm) for _ in range(depth)])
        self.w_final = nn.Parameter(torch.ones(dim))
        self.head = nn.Linear(dim, 1)
        self.add_norm = add_norm

    def forward(self, tokens):
        x = self.embed(tokens)
        residual = torch.zeros_like(x)
        for layer in self.layers:
            x, residual = layer(x, residual)
        _, h = self.add_norm(x, residual, self.w_final)
        return self.head(h.mean(1)).squeeze(-1)


class RequestQueue:
    """Batches as the front-end hands them over: so many candidates, padded to the longest."""

    def __init__(self, vocab, candidates, lengths):
        self.gen = torch.Generator().manual_seed(23)
        self.vocab, self.candidates, self.lengths = vocab, candidates, lengths

    def take(self):
        n = int(torch.randint(*self.candidates, (1,), generator=self.gen))
        longest = int(torch.randint(*self.lengths, (1,), generator=self.gen))
        longest = (longest + 7) // 8 * 8
        return torch.randint(0, self.vocab, (n, longest), generator=self.gen)


class Service:
    def __init__(self, model, device, top):
        self.model, self.device, self.top = model, device, top
        self.answered = 0

    @torch.inference_mode()
    def answer(self, tokens):
        scores = self.model(tokens.to(self.device))
        best = scores.float().topk(min(self.top, len(scores)))
        self.answered += len(tokens)
        return best.indices.tolist(), best.values.tolist()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(1)
    big = device.type == "cuda"
    vocab, dim, depth = (32000, 2048, 16) if big else (500, 64, 2)
    dtype = torch.bfloat16 if big else torch.float32
    if big:
        key = ["n_rows", "n_cols"] if args.variant == "slow" else ["n_cols"]
        add_norm = build_add_norm(key)
    else:
        add_norm = add_norm_plain
    with torch.device(device):
        model = Scorer(vocab, dim, depth, add_norm).to(dtype).eval()
    queue = RequestQueue(vocab, *(((12, 37), (96, 480)) if big else ((2, 5), (8, 33))))
    service = Service(model, device, top=10)

    def step():
        service.answer(queue.take())

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
