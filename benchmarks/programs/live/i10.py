"""Training with sparsified gradients and error feedback (simulating one bandwidth-limited worker)."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Regressor(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.head = nn.Linear(width, inputs)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = x + 0.3 * F.relu(layer(x))
        return self.head(x)


class Compressor:
    """Keeps the largest gradient entries, the rest is carried to the next step."""

    def __init__(self, params, density):
        self.params = list(params)
        self.sizes = [p.numel() for p in self.params]
        self.density = density
        self.rest = torch.zeros(sum(self.sizes), device=self.params[0].device)

    def threshold(self, magnitude):
        ordered, _ = torch.sort(magnitude, descending=True)
        return ordered[int(self.density * len(magnitude))]

    @torch.no_grad()
    def apply(self):
        flat = torch.cat([p.grad.flatten() for p in self.params])
        flat += self.rest
        magnitude = flat.abs()
        sent = torch.where(magnitude >= self.threshold(magnitude), flat, 0.0)
        torch.sub(flat, sent, out=self.rest)
        for p, piece in zip(self.params, sent.split(self.sizes)):
            p.grad = piece.view_as(p)


class SampledCompressor(Compressor):
    def threshold(self, magnitude):
        some = magnitude[:: max(1, len(magnitude) // 200_000)]
        return some.kthvalue(max(1, int((1 - self.density) * len(some)))).values


def waves(rows, inputs, device):
    """Smooth signals and the same signals a little later."""
    gen = torch.Generator(device=device).manual_seed(13)
    t = torch.arange(inputs, device=device) / inputs
    while True:
        speed = torch.rand(rows, 1, generator=gen, device=device) * 40
        phase = torch.rand(rows, 1, generator=gen, device=device) * 6
        yield torch.sin(speed * t + phase), torch.sin(speed * (t + 0.1) + phase)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cuda")
    p.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--max-seconds", type=float, default=14)
    a = p.parse_args()
    torch.manual_seed(5)
    gpu = a.device == "cuda"
    inputs, width, depth, rows = (512, 4096, 18, 1024) if gpu else (32, 64, 3, 16)
    model = Regressor(inputs, width, depth).to(a.device)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.0, fused=gpu)
    kind = Compressor if a.variant == "slow" else SampledCompressor
    compressor = kind(model.parameters(), density=0.01)
    begin = time.perf_counter()
    for step, (x, y) in enumerate(waves(rows, inputs, a.device), 1):
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=gpu):
            out = model(x)
        loss = F.mse_loss(out.float(), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        compressor.apply()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if step >= a.steps or time.perf_counter() - begin > a.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
