"""Masked-language-model pre-training of a compact encoder with a large multilingual vocabulary."""

import argparse
import contextlib
import time

import torch
from torch import nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn, self.n1, self.n2 = (
            SelfAttention(dim, heads),
            nn.LayerNorm(dim),
            nn.LayerNorm(dim),
        )
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class MaskedLM(nn.Module):
    def __init__(self, vocab, dim, depth, heads, length):
        super().__init__()
        self.word = nn.Embedding(vocab, dim)
        self.place = nn.Embedding(length, dim)
        self.encoder = nn.Sequential(*[EncoderLayer(dim, heads) for _ in range(depth)])
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.bias = nn.Parameter(torch.zeros(vocab))
        nn.init.normal_(self.word.weight, std=0.02)

    def encode(self, ids):
        return self.encoder(self.word(ids) + self.place.weight[: ids.shape[1]])

    def predict(self, hidden):
        return F.linear(self.transform(hidden), self.word.weight, self.bias)


def pick(values, where):
    """Rows of `values` (B, T, C) at the positions `where` (B, M)."""
    return values.gather(1, where.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def make_objective(variant):
    def per_token(model, ids, where, answers):
        logits = model.predict(model.encode(ids))
        targets = torch.full_like(ids, -100).scatter(1, where, answers)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)

    def per_answer(model, ids, where, answers):
        hidden = pick(model.encode(ids), where)
        return F.cross_entropy(model.predict(hidden).flatten(0, 1), answers.flatten())

    return per_token if variant == "slow" else per_answer


def corpus(batch, length, vocab, device, rate=0.15, mask_id=3):
    gen = torch.Generator(device=device).manual_seed(41)
    count = int(length * rate)
    while True:
        r = torch.rand(batch, length, generator=gen, device=device)
        ids = (5 + r**4 * (vocab - 6)).long()
        where = torch.rand(batch, length, generator=gen, device=device).topk(count, dim=1).indices
        answers = ids.gather(1, where)
        yield ids.scatter(1, where, mask_id), where, answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--max-seconds", type=float, default=36)
    args = parser.parse_args()
    torch.manual_seed(0)
    gpu = args.device == "cuda"
    vocab, dim, depth, heads, length, batch = (
        (65536, 512, 6, 8, 512, 64) if gpu else (500, 32, 2, 2, 40, 4)
    )
    model = MaskedLM(vocab, dim, depth, heads, length).to(args.device)
    objective = make_objective(args.variant)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01, fused=gpu)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, 5e-4, total_steps=args.steps + 1, pct_start=0.1
    )
    cast = (lambda: torch.autocast("cuda", dtype=torch.bfloat16)) if gpu else contextlib.nullcontext
    smooth, start = None, time.perf_counter()
    for step, (ids, where, answers) in zip(
        range(1, args.steps + 1), corpus(batch, length, vocab, args.device)
    ):
        with cast():
            loss = objective(model, ids, where, answers)
        loss.backward()
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        d = loss.detach()
        smooth = d if smooth is None else 0.98 * smooth + 0.02 * d
        if step % 50 == 0:
            print(f"{step:6d} mlm loss {smooth.item():.4f}", flush=True)
        if time.perf_counter() - start > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - start
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
