"""Exact Gaussian process: marginal likelihood of a sensor series, hyper-parameters by gradient."""
import argparse, gc, json, logging, math, statistics, sys, time
import torch
import torch.nn as nn

log = logging.getLogger("gp")
N = 800


class Kernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.ParameterDict({k: nn.Parameter(torch.tensor(v, dtype=torch.float64)) for k, v in
                                     {"length": -1.0, "scale": 0.0, "noise": -16.0}.items()})

    def forward(self, squared):
        k = self.raw["scale"].exp() * torch.exp(squared * (-0.5 / self.raw["length"].exp() ** 2))
        return k + self.raw["noise"].exp() * torch.eye(len(k), dtype=k.dtype)


def factor(cov):
    jitter = 0.0
    for attempt in range(5):
        lower, info = torch.linalg.cholesky_ex(cov if not jitter else cov + jitter * torch.eye(len(cov), dtype=cov.dtype))
        if info.item() == 0:
            return lower
        jitter = max(jitter * 10, 1e-10)
    raise RuntimeError("not positive definite")


def nll(kernel, squared, y):
    lower = factor(kernel(squared))
    alpha = torch.cholesky_solve(y[:, None], lower)[:, 0]
    return 0.5 * y @ alpha + lower.diagonal().log().sum() + 0.5 * len(y) * math.log(2 * math.pi)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="healthy", choices=["healthy"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    torch.manual_seed(0)
    x = torch.linspace(0, 20, N, dtype=torch.float64)
    y = torch.sin(x) + 0.3 * torch.sin(4.1 * x) + 0.002 * torch.randn(N, dtype=torch.float64)
    squared = (x[:, None] - x[None, :]) ** 2
    kernel = Kernel()
    opt = torch.optim.Adam(kernel.parameters(), lr=0.01)
    history, times, start = [], [], time.perf_counter()
    for step in range(a.steps):
        t = time.perf_counter()
        opt.zero_grad()
        loss = nll(kernel, squared, y)
        loss.backward()
        opt.step()
        history.append({k: v.item() for k, v in kernel.raw.items()} | {"loss": loss.item()})
        log.info("step %d %s", step, history[-1])
        if step % 100 == 99:
            gc.collect()
        times.append((time.perf_counter() - t) * 1e3)
        if time.perf_counter() - start > a.max_seconds:
            break
    kept = times[3:] or times
    print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "loss": history[-1]["loss"]}))


if __name__ == "__main__":
    main()
