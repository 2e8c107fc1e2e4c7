"""Training a wide residual denoiser with an orthogonalising (Muon style) optimizer."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, LAYERS, ROWS = (8192, 4, 16384) if GPU else (64, 2, 128)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(DIM, DIM, bias=False) for _ in range(LAYERS)])

    def forward(self, x):
        for layer in self.layers:
            x = x + F.gelu(layer(x), approximate="tanh")
        return x


def orthogonalise(matrix, rounds=5):
    """Quintic Newton-Schulz iteration towards the nearest orthogonal matrix."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        poly = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.addmm(x, poly, x, beta=a)
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "buffer" not in state:
                    state["buffer"] = torch.zeros_like(p)
                buffer = state["buffer"]
                buffer.lerp_(p.grad, 1 - group["momentum"])
                p.add_(orthogonalise(buffer), alpha=-group["lr"])


def noisy_pairs(seed):
    gen = torch.Generator(device=args.device).manual_seed(seed)
    clean = torch.randn(ROWS, DIM, device=args.device, generator=gen).to(DTYPE)
    while True:
        noise = torch.empty_like(clean).normal_(generator=gen)
        yield clean + 0.3 * noise, clean


def summarise(model):
    rows = []
    for name, p in model.named_parameters():
        rows.append((name, p.detach().float().abs().mean().item(), p.grad.abs().max().item()))
    return " ".join(f"{n.split('.')[1]}:{w:.4f}/{g:.2e}" for n, w, g in rows)


def main():
    torch.manual_seed(2)
    with torch.device(args.device):
        model = Denoiser().to(DTYPE)
    opt = Muon(model.parameters(), lr=0.002)
    losses = []
    begin = time.perf_counter()
    for step, (noisy, clean) in enumerate(noisy_pairs(9)):
        loss = F.mse_loss(model(noisy), clean)
        opt.zero_grad(set_to_none=False)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}", flush=True)
        if step % 20 == 19:
            print(summarise(model), flush=True)
        if step + 1 >= args.steps or time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    n = len(losses)
    print(f"done steps={n} ms_per_step={1e3 * took / n:.2f} loss={losses[-1]:.5f}")


main()
