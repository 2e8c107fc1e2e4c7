"""Long-horizon load forecaster trained with a Kronecker-factored (Shampoo-style) optimizer."""
import argparse
import json
import statistics
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gj01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 480
WARMUP = 20


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
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=20),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(22):
            step()
            prof.step()
    synchronize(device)


class KronOptimizer(torch.optim.Optimizer):
    """Two-sided preconditioner per matrix; the roots are renewed every `every` steps, momentum on top."""

    def __init__(self, params, lr=2e-3, momentum=0.9, beta=0.95, damping=1e-4, every=20, variant="slow"):
        super().__init__(params, dict(lr=lr, momentum=momentum, beta=beta, damping=damping, every=every))
        self.variant = variant
        self.count = 0

    def inverse_root(self, stat, damping):
        n = stat.shape[0]
        mean = stat.diagonal().mean().clamp_min(1e-12)
        a = stat / mean + damping * torch.eye(n, device=stat.device)
        if self.variant == "fixed":
            s, u = torch.linalg.eigh(a)
            root = (u * s.clamp_min(damping).pow(-0.25)) @ u.mT
        else:
            u, s, vh = torch.linalg.svd(a)
            root = (u * s.clamp_min(damping).pow(-0.25)) @ vh
        return root

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                g, state = p.grad, self.state[p]
                if "buf" not in state:
                    state["buf"] = torch.zeros_like(p)
                    if p.ndim == 2:
                        for key, n in (("left", p.shape[0]), ("right", p.shape[1])):
                            state[key] = torch.zeros(n, n, device=p.device)
                            state[key + "_root"] = torch.eye(n, device=p.device)
                if p.ndim == 2:
                    b = group["beta"]
                    state["left"].mul_(b).addmm_(g, g.mT, alpha=1 - b)
                    state["right"].mul_(b).addmm_(g.mT, g, alpha=1 - b)
                    if self.count % group["every"] == group["every"] - 1:
                        for key in ("left", "right"):
                            state[key + "_root"] = self.inverse_root(state[key], group["damping"])
                    d = state["left_root"] @ g @ state["right_root"]
                    d = d * (g.norm() / d.norm().clamp_min(1e-12))
                else:
                    d = g
                state["buf"].mul_(group["momentum"]).add_(d)
                p.add_(state["buf"], alpha=-group["lr"])
        self.count += 1


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lin = nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.lin(self.norm(x)))


class Forecaster(nn.Module):
    def __init__(self, window, width, depth):
        super().__init__()
        assert window == width
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.horizon = nn.Linear(width, 96)
        self.horizon.weight.requires_grad_(False)

    def forward(self, x):
        scale = x.abs().mean(1, keepdim=True) + 1e-3
        h = x / scale
        for b in self.blocks:
            h = b(h)
        return self.horizon(h) * scale


def series(batch, length, device):
    t = torch.arange(length, device=device)
    f = torch.rand(batch, 3, 1, device=device) * 0.2
    ph = torch.rand(batch, 3, 1, device=device) * 6.28
    return (torch.sin(f * t + ph)).sum(1) + 0.1 * torch.randn(batch, length, device=device)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    big = device.type == "cuda"
    width, batch = (768, 8192) if big else (48, 32)
    model = Forecaster(width, width, 3).to(device)
    opt = KronOptimizer([p for p in model.parameters() if p.requires_grad], variant=args.variant)
    seen = []

    def step():
        data = series(batch, width + 96, device)
        loss = F.smooth_l1_loss(model(data[:, :width]), data[:, width:])
        for p in model.parameters():
            p.grad = None
        loss.backward()
        opt.step()
        seen.append(loss.detach())
        if len(seen) == 50:
            print(f"# loss {torch.stack(seen).mean().item():.4f}", flush=True)
            seen.clear()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
