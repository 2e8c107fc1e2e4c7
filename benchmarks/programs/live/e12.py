"""Gaussian-process regression: block conjugate gradients on a dense kernel matrix."""
import math

import torch

from blocks_e import StepTimes, base_parser

DTYPE = torch.float64          # nugget is 1e-8: single precision does not converge


def matern32(x, y, length):
    d = torch.cdist(x, y) * (math.sqrt(3.0) / length)
    return (1 + d) * torch.exp(-d)


def build_kernel(n, dim, length, nugget, device):
    x = torch.rand(n, dim, dtype=DTYPE, device=device)
    k = torch.empty(n, n, dtype=DTYPE, device=device)
    for lo in range(0, n, 4096):
        k[lo:lo + 4096] = matern32(x[lo:lo + 4096], x, length)
    k.diagonal().add_(nugget)
    return x, k


class Preconditioner:
    """Nystrom approximation with a small set of inducing rows."""

    def __init__(self, x, rank, length, nugget):
        u = x[:rank]
        kuu = matern32(u, u, length)
        kuu.diagonal().add_(1e-6)
        kux = matern32(u, x, length)
        chol = torch.linalg.cholesky(kuu)
        a = torch.linalg.solve_triangular(chol, kux, upper=False)
        self.sigma = nugget + 1e-3
        inner = a @ a.T
        inner.diagonal().add_(self.sigma)
        self.q = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), a, upper=False)

    def __call__(self, r):
        return (r - self.q.T @ (self.q @ r)) / self.sigma


class BlockCG:
    """One solve for all right-hand sides at once, restarted at fixed intervals."""

    def __init__(self, k, precond, rhs, tol=1e-10):
        self.k, self.m, self.b, self.tol = k, precond, rhs, tol
        self.x = torch.zeros_like(rhs)
        self.restart()

    def restart(self):
        self.r = self.b - self.k @ self.x
        self.z = self.m(self.r)
        self.p = self.z.clone()
        self.rz = (self.r * self.z).sum(0)

    def iterate(self):
        kp = self.k @ self.p
        alpha = self.rz / (self.p * kp).sum(0).clamp_min(1e-300)
        self.x.addcmul_(self.p, alpha)
        self.r.addcmul_(kp, alpha, value=-1)
        self.z = self.m(self.r)
        rz = (self.r * self.z).sum(0)
        beta = rz / self.rz.clamp_min(1e-300)
        self.p.mul_(beta).add_(self.z)
        self.rz = rz
        return float(self.r.norm() / self.b.norm())


def main():
    args = base_parser(variants=("healthy",)).parse_args()
    torch.manual_seed(0)
    dev = torch.device(args.device)
    n, rhs, rank = (200, 4, 16) if args.tiny else (32768, 1024, 256)
    x, k = build_kernel(n, 3, 0.5, 1e-8, dev)
    y = torch.sin(6 * x.sum(1, keepdim=True)) + 0.1 * torch.randn(n, rhs, dtype=DTYPE, device=dev)
    solver = BlockCG(k, Preconditioner(x, rank, 0.5, 1e-8), y)
    warm = 1 if args.tiny else 3
    times, trace = StepTimes(dev), []
    for step in range(args.steps + warm):
        if step == warm:
            times.begin()
        res = solver.iterate()
        trace.append(res)
        if res < solver.tol:
            solver.x.zero_()
            solver.restart()
        if step % 25 == 24:
            print("iter %4d  residual %.3e  best %.3e" % (step, res, min(trace)), flush=True)
        if step >= warm:
            times.tick()
    times.finish()


if __name__ == "__main__":
    main()
