"""Small GPT training that keeps the best weights seen so far."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab, dim, depth, heads, context):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(context, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.norm(self.blocks(self.tok(ids) + self.pos))
        logits = F.linear(x, self.tok.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class BestWeights:
    """Remembers the weights with the lowest smoothed training loss."""

    def __init__(self, model, smoothing=0.9):
        self.model, self.smoothing = model, smoothing
        self.smooth, self.lowest, self.weights, self.kept = None, float("inf"), None, 0

    def update(self, loss):
        if self.smooth is None:
            self.smooth = loss
        self.smooth = self.smoothing * self.smooth + (1 - self.smoothing) * loss
        if self.smooth < self.lowest:
            self.lowest = self.smooth
            self.keep()
            self.kept += 1

    def keep(self):
        state = self.model.state_dict()
        self.weights = {name: value.to("cpu", copy=True) for name, value in state.items()}


class ResidentBestWeights(BestWeights):
    @torch.no_grad()
    def keep(self):
        state = list(self.model.state_dict().values())
        if self.weights is None:
            self.weights = [torch.empty_like(v) for v in state]
        torch._foreach_copy_(self.weights, state)


def chatter(batch, context, vocab, device):
    """Tokens that mostly follow their predecessor by a fixed rule."""
    gen = torch.Generator(device=device).manual_seed(5)
    while True:
        start = torch.randint(vocab // 8, (batch, 1), generator=gen, device=device)
        run = (start + 3 * torch.arange(context + 1, device=device)) % vocab
        other = torch.randint(vocab, run.shape, generator=gen, device=device)
        noisy = torch.rand(run.shape, generator=gen, device=device) < 0.1
        ids = torch.where(noisy, other, run)
        yield ids[:, :-1], ids[:, 1:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cuda")
    p.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--max-seconds", type=float, default=15)
    a = p.parse_args()
    torch.manual_seed(3)
    gpu = a.device == "cuda"
    vocab, dim, depth, heads, context, batch = (
        (32768, 1024, 8, 16, 1024, 8) if gpu else (128, 32, 2, 2, 32, 4)
    )
    model = GPT(vocab, dim, depth, heads, context).to(a.device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=gpu)
    best = BestWeights(model) if a.variant == "slow" else ResidentBestWeights(model)
    begin = time.perf_counter()
    for step, (ids, targets) in enumerate(chatter(batch, context, vocab, a.device), 1):
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=gpu):
            loss = model(ids, targets)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        value = loss.item()
        best.update(value)
        if step % 10 == 0:
            print(f"step {step} loss {value:.4f} best {best.lowest:.4f}", flush=True)
        if step >= a.steps or time.perf_counter() - begin > a.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"kept {best.kept} times")
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={value:.5f}")


if __name__ == "__main__":
    main()
