"""Fine-tuning the vision head of a soil-spectra model with Muon (our own copy of the optimiser)."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=120)
args = parser.parse_args()


def orthogonalise(g, steps=5):
    """Newton-Schulz iteration of the quintic polynomial, as in the Muon write-up."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    wide = args.variant == "fixed" and x.size(0) > x.size(1)
    if wide:
        x = x.T
    for _ in range(steps):
        gram = x @ x.T
        poly = b * gram + c * gram @ gram
        x = a * x + poly @ x
    return x.T if wide else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "buf" not in state:
                    state["buf"] = torch.zeros_like(p)
                buf = state["buf"].mul_(group["momentum"]).add_(p.grad)
                update = orthogonalise(p.grad.add(buf, alpha=group["momentum"]))
                p.add_(update, alpha=-group["lr"] * max(1.0, p.size(0) / p.size(1)) ** 0.5)


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Spectra(nn.Module):
    def __init__(self, bands=210, width=128, hidden=512, classes=12):
        super().__init__()
        self.inp = nn.Linear(bands, width)
        self.blocks = nn.ModuleList(Block(width, hidden) for _ in range(2))
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


torch.manual_seed(0)
device = torch.device(args.device)
model = Spectra().to(device)
matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and n.startswith("blocks")]
others = [p for n, p in model.named_parameters() if not (p.ndim == 2 and n.startswith("blocks"))]
optimisers = [Muon(matrices), torch.optim.AdamW(others, lr=1e-3)]
spectra = torch.randn(20000, 210)
labels = torch.randint(0, 12, (20000,))

times = []
for step in range(args.steps):
    start = time.perf_counter()
    pick = torch.randint(0, len(spectra), (384,))
    x, y = spectra[pick].to(device), labels[pick].to(device)
    loss = F.cross_entropy(model(x), y)
    for opt in optimisers:
        opt.zero_grad()
    loss.backward()
    for opt in optimisers:
        opt.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.3f}")
    times.append(time.perf_counter() - start)

half = times[len(times) // 2 :]
print(f"step_ms={1000 * sum(half) / len(half):.3f}")
