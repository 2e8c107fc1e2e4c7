"""LoRA fine-tuning of a frozen decoder language model; linear layers go through the project's own autograd function."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class CastMatmul(torch.autograd.Function):
    """x @ W.T with W cast to the dtype of the activations and gradients returned in the dtype of the parameter."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.to(x.dtype).t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = grad @ weight.to(grad.dtype)
        grad_w = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        return grad_x, grad_w.to(weight.dtype)


class CastMatmulNeeds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return x @ weight.to(x.dtype).t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = grad_w = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ weight.to(grad.dtype)
        if ctx.needs_input_grad[1]:
            grad_w = (grad.flatten(0, -2).t() @ x.flatten(0, -2)).to(weight.dtype)
        return grad_x, grad_w


class Linear(nn.Module):
    matmul = None

    def __init__(self, cin, cout, dtype, rank=0, alpha=16.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, dtype=dtype) * (0.5 / math.sqrt(cin)), requires_grad=False)
        self.rank, self.scale = rank, alpha / max(rank, 1)
        if rank:
            self.a = nn.Parameter(torch.randn(rank, cin, dtype=dtype) / math.sqrt(cin))
            self.b = nn.Parameter(torch.zeros(cout, rank, dtype=dtype))

    def forward(self, x):
        y = self.matmul(x, self.weight)
        if self.rank:
            y = torch.add(y, F.linear(F.linear(x, self.a), self.b), alpha=self.scale)
        return y


def rotary(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self, dim, ffn, heads, rank, dtype):
        super().__init__()
        self.heads = heads
        self.n1 = nn.RMSNorm(dim, dtype=dtype).requires_grad_(False)
        self.n2 = nn.RMSNorm(dim, dtype=dtype).requires_grad_(False)
        self.q, self.k, self.v, self.o = (Linear(dim, dim, dtype, rank) for _ in range(4))
        self.gate, self.up = Linear(dim, ffn, dtype, rank), Linear(dim, ffn, dtype, rank)
        self.down = Linear(ffn, dim, dtype, rank)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        h = self.n1(x)
        q, k, v = (p(h).view(b, t, self.heads, d // self.heads).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotary(q, cos, sin), rotary(k, cos, sin)
        att = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(att.transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, ffn, heads, depth, rank, length, dtype):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, dtype=dtype).requires_grad_(False)
        self.layers = nn.ModuleList(Layer(dim, ffn, heads, rank, dtype) for _ in range(depth))
        self.norm = nn.RMSNorm(dim, dtype=dtype).requires_grad_(False)
        self.head = Linear(dim, vocab, dtype)
        half = dim // heads // 2
        angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos().to(dtype))
        self.register_buffer("sin", angle.sin().to(dtype))

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def build(args, device):
    tiny = device.type == "cpu"
    # -- variant
    Linear.matmul = staticmethod({"slow": CastMatmul, "fixed": CastMatmulNeeds}[args.variant].apply)
    # --
    torch.manual_seed(0)
    vocab, dim, ffn, heads, depth, rank, length, batch = (
        (256, 64, 128, 2, 2, 4, 32, 2) if tiny else (32000, 2048, 5632, 16, 12, 16, 2048, 8))
    with torch.device(device):
        model = Decoder(vocab, dim, ffn, heads, depth, rank, length, torch.bfloat16)
    train = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(train, lr=1e-4, fused=True)
    pool = [torch.randint(0, vocab, (batch, length + 1)) for _ in range(8)]
    if not tiny:
        pool = [t.pin_memory() for t in pool]
    state = {"n": 0}

    def step():
        ids = pool[state["n"] % len(pool)].to(device, non_blocking=True)
        state["n"] += 1
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(train, 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

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
    args = parse_args(["slow", "fixed"], {"slow": 65, "fixed": 90})
    device = torch.device(args.device)
    measure("s03", args, build(args, device), device)
