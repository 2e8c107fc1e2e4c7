"""Exact Gaussian-process regression: hyper-parameter search on a dense kernel, analytic gradients."""
import argparse
import json
import math
import statistics
import time

import torch


class SmoothDataset:
    """Noisy samples of a smooth surface on the unit square, inputs standardised."""

    def __init__(self, n, device, seed=0):
        gen = torch.Generator().manual_seed(seed)
        x = torch.rand(n, 2, generator=gen, dtype=torch.float64)
        y = torch.sin(5 * x[:, 0]) * torch.cos(3 * x[:, 1]) + 0.5 * x.sum(1)
        y = y + 1e-3 * torch.randn(n, generator=gen, dtype=torch.float64)
        self.x = x.to(device)
        self.y = ((y - y.mean()) / y.std()).to(device)


class KernelWorkspace:
    """Buffers reused across iterations so that the n x n matrices are allocated once."""

    def __init__(self, x):
        n = x.shape[0]
        sq = (x * x).sum(1)
        self.d2 = torch.addmm(sq[:, None] + sq[None, :], x, x.t(), alpha=-2.0).clamp_(min=0.0)
        self.k = torch.empty(n, n, dtype=x.dtype, device=x.device)
        self.a = torch.empty_like(self.k)

    def rbf(self, length):
        torch.mul(self.d2, -0.5 / (length * length), out=self.k)
        return self.k.exp_()


class MarginalLikelihood:
    JITTERS = (0.0, 1e-10, 1e-9, 1e-8)

    def __init__(self, data, device):
        self.data, self.device = data, device
        self.ws = KernelWorkspace(data.x)
        self.log_length, self.log_scale, self.log_noise = math.log(0.15), 0.0, math.log(1e-6)

    def factor(self, cov):
        diag = cov.diagonal()
        added = 0.0
        for jitter in self.JITTERS:
            diag.add_(jitter - added)
            added = jitter
            chol, info = torch.linalg.cholesky_ex(cov, check_errors=False)
            if int(info) == 0:
                return chol
        raise RuntimeError("covariance is not positive definite")

    def value_and_grad(self):
        length, scale, noise = math.exp(self.log_length), math.exp(self.log_scale), math.exp(self.log_noise)
        n = self.data.y.shape[0]
        k = self.ws.rbf(length)
        cov = torch.mul(k, scale, out=self.ws.a)
        cov.diagonal().add_(noise)
        chol = self.factor(cov)
        alpha = torch.cholesky_solve(self.data.y[:, None], chol)
        logdet = 2.0 * chol.diagonal().log().sum()
        nll = 0.5 * (self.data.y @ alpha[:, 0] + logdet + n * math.log(2 * math.pi))
        inner = torch.cholesky_inverse(chol).mT
        inner.addmm_(alpha, alpha.t(), alpha=-1.0)
        trace_noise = inner.diagonal().sum()
        inner.mul_(k)
        g_scale = 0.5 * scale * inner.sum()
        g_length = 0.5 * scale * torch.dot(inner.reshape(-1), self.ws.d2.reshape(-1)) / (length * length)
        return torch.stack([nll, g_length, g_scale, 0.5 * noise * trace_noise])

    def parameters(self):
        return [self.log_length, self.log_scale, self.log_noise]

    def assign(self, values):
        self.log_length, self.log_scale, self.log_noise = values


class ScalarAdam:
    def __init__(self, lr=0.002, betas=(0.9, 0.99)):
        self.lr, self.b1, self.b2 = lr, *betas
        self.m, self.v, self.t = [0.0] * 3, [0.0] * 3, 0

    def update(self, values, grads):
        self.t += 1
        out = []
        for i, (x, g) in enumerate(zip(values, grads)):
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * g
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * g * g
            mh, vh = self.m[i] / (1 - self.b1 ** self.t), self.v[i] / (1 - self.b2 ** self.t)
            out.append(x - self.lr * mh / (math.sqrt(vh) + 1e-12))
        return out


class Search:
    def __init__(self, n, device):
        self.objective = MarginalLikelihood(SmoothDataset(n, device), device)
        self.optimiser = ScalarAdam()
        self.best = float("inf")

    @torch.no_grad()
    def step(self):
        nll, *grads = self.objective.value_and_grad().tolist()
        self.best = min(self.best, nll)
        self.objective.assign(self.optimiser.update(self.objective.parameters(), grads))
        return nll


def profile_to(path, search, device):
    from torch.profiler import ProfilerActivity, profile, schedule
    kinds = [ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds, record_shapes=True, with_stack=True, with_modules=True,
                 schedule=schedule(wait=0, warmup=2, active=4), on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            search.step()
            prof.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", choices=["healthy"], default="healthy")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--max-seconds", type=float, default=60.0)
    parser.add_argument("--trace")
    args = parser.parse_args()
    device = torch.device(args.device)
    search = Search(12288 if device.type == "cuda" else 192, device)
    for _ in range(3):
        search.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    t0 = time.perf_counter()
    laps = []
    while len(laps) < args.steps and time.perf_counter() - t0 < args.max_seconds:
        lap = time.perf_counter()
        search.step()
        laps.append(time.perf_counter() - lap)
    if device.type == "cuda":
        torch.cuda.synchronize()
    mean = (time.perf_counter() - t0) / len(laps)
    print(json.dumps({"program": "v03", "variant": args.variant, "steps": len(laps), "step_ms_mean": mean * 1e3,
                      "step_ms_median": statistics.median(laps) * 1e3}), flush=True)
    if args.trace:
        profile_to(args.trace, search, device)


if __name__ == "__main__":
    main()
