"""Choosing the next experiments with a Gaussian process."""

import argparse
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

KNOBS, KNOWN, CANDIDATES, PICK, WARM = 6, 240, 3000, 4, 3


class Kernel:
    def __init__(self, width=0.8):
        self.width = width

    def __call__(self, a, b):
        return torch.exp(-0.5 * torch.cdist(a, b).square() / self.width**2)


class Process:
    def __init__(self, kernel, noise=1e-2):
        self.kernel, self.noise = kernel, noise

    def fit(self, x, y):
        self.x = x
        self.root = torch.linalg.cholesky(self.kernel(x, x) + self.noise * torch.eye(len(x)))
        self.weights = torch.cholesky_solve(y.unsqueeze(1), self.root)

    def spread(self, cross, solved):
        return 1.0 - torch.diagonal(cross @ solved)

    def predict(self, x):
        cross = self.kernel(x, self.x)
        solved = torch.cholesky_solve(cross.T, self.root)
        mean = (cross @ self.weights).squeeze(1)
        return mean, self.spread(cross, solved).clamp_(min=1e-6).sqrt()


class RowProcess(Process):
    def spread(self, cross, solved):
        return 1.0 - (cross * solved.T).sum(1)


class Laboratory:
    """Stands for the real machine: a bumpy function of the knobs."""

    def __init__(self):
        self.centres = torch.rand(12, KNOBS)
        self.heights = torch.randn(12)

    def measure(self, x):
        near = torch.exp(-4 * torch.cdist(x, self.centres).square())
        return near @ self.heights + 0.02 * torch.randn(len(x))


class Search:
    def __init__(self):
        self.laboratory = Laboratory()
        self.x = torch.rand(KNOWN, KNOBS)
        self.y = self.laboratory.measure(self.x)
        kind = Process if args.variant == "slow" else RowProcess
        self.process = kind(Kernel())

    def improvement(self, mean, deviation):
        normal = torch.distributions.Normal(0.0, 1.0)
        z = (mean - self.y.max()) / deviation
        return deviation * (z * normal.cdf(z) + normal.log_prob(z).exp())

    def round(self):
        self.process.fit(self.x, self.y - self.y.mean())
        candidates = torch.rand(CANDIDATES, KNOBS)
        mean, deviation = self.process.predict(candidates)
        chosen = candidates[self.improvement(mean + self.y.mean(), deviation).topk(PICK).indices]
        self.x = torch.cat([self.x[PICK:], chosen])
        self.y = torch.cat([self.y[PICK:], self.laboratory.measure(chosen)])


@torch.no_grad()
def main():
    torch.manual_seed(0)
    search = Search()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        search.round()
        if step % 20 == 0:
            print(f"round {step} best {search.y.max().item():.4f}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
