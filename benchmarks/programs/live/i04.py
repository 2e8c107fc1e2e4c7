"""Long-context language model training on packed books."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )

    def forward(self, x, bias):
        x = x + self.attn(self.n1(x), bias)
        return x + self.mlp(self.n2(x))


class LongModel(nn.Module):
    def __init__(self, vocab, dim, depth, heads, context, with_bias):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        bias = None
        if with_bias:
            bias = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.tok(ids) + self.pos.weight[:t]
        bias = None if self.bias is None else self.bias[:t, :t]
        for block in self.blocks:
            x = block(x, bias)
        return self.head(self.norm(x))


class PackedBooks:
    """One long token array; a sample is a window of context + 1 tokens."""

    def __init__(self, tokens, vocab, context, device):
        gen = torch.Generator(device=device).manual_seed(1)
        u = torch.rand(tokens, generator=gen, device=device)
        self.data = (vocab * u.pow(4)).long().clamp_(max=vocab - 1)
        self.context = context
        self.gen = gen

    def draw(self, batch):
        hi = len(self.data) - self.context - 1
        start = torch.randint(hi, (batch, 1), generator=self.gen, device=self.data.device)
        window = start + torch.arange(self.context + 1, device=self.data.device)
        block = self.data[window]
        return block[:, :-1], block[:, 1:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cuda")
    p.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--max-seconds", type=float, default=15)
    a = p.parse_args()
    torch.manual_seed(8)
    gpu = a.device == "cuda"
    vocab, dim, depth, heads, context, batch = (
        (16384, 1024, 6, 16, 8192, 2) if gpu else (128, 32, 2, 2, 64, 2)
    )
    dtype = torch.bfloat16 if gpu else torch.float32
    model = LongModel(vocab, dim, depth, heads, context, a.variant == "slow")
    model = model.to(a.device, dtype)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.05, fused=gpu)
    books = PackedBooks(4_000_000 if gpu else 10_000, vocab, context, a.device)
    begin = time.perf_counter()
    for step in range(1, a.steps + 1):
        ids, targets = books.draw(batch)
        logits = model(ids)
        loss = F.cross_entropy(logits.view(-1, vocab), targets.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > a.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
