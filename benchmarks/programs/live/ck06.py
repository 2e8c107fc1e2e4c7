"""Train a wide residual regressor on in-memory tables."""
import argparse, copy, gc, json, logging, statistics, time
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("train")


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="healthy", choices=["healthy"])
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--max-seconds", type=float, default=28)
    return p.parse_args()


def tables(rows=20000, dim=256):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(rows, dim, generator=g)
    w = torch.randn(dim, 4, generator=g) / dim ** 0.5
    return TensorDataset(x, torch.tanh(x @ w))


class Unit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, dim=256, width=896, depth=3):
        super().__init__()
        self.inp = nn.Linear(dim, width)
        self.units = nn.ModuleList(Unit(width) for _ in range(depth))
        self.outs = nn.ModuleList(nn.Linear(width, 1) for _ in range(4))

    def forward(self, x):
        x = self.inp(x)
        for u in self.units:
            x = u(x)
        return torch.cat([o(x) for o in self.outs], 1)


class History:
    def __init__(self):
        self.loss, self.norms = [], []

    def add(self, loss, net):
        self.loss.append(loss.item())
        self.norms.append({n: float(p.grad.norm()) for n, p in net.outs.named_parameters()})
        log.debug("loss %s norms %s", self.loss[-1], self.norms[-1])


def main():
    args = parse()
    torch.manual_seed(0)
    loader = DataLoader(tables(), batch_size=768, shuffle=True, num_workers=0, drop_last=True)
    net = Regressor()
    opt = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    hist, best, best_loss = History(), None, 1e9
    ms, begin, step = [], time.perf_counter(), 0
    last = begin
    while step < args.steps and time.perf_counter() - begin < args.max_seconds:
        for x, y in loader:
            opt.zero_grad()
            parts = [F.mse_loss(p, t) for p, t in zip(net(x).unbind(1), y.unbind(1))]
            loss = sum(parts)
            loss.backward()
            opt.step()
            hist.add(loss, net)
            step += 1
            now = time.perf_counter()
            ms.append((now - last) * 1e3)
            last = now
            if step >= args.steps or now - begin > args.max_seconds:
                break
        gc.collect()
        mean = statistics.fmean(hist.loss[-20:])
        if mean < best_loss:
            best, best_loss = copy.deepcopy(net.state_dict()), mean
        print(f"step {step} loss {mean:.5f}", flush=True)
    body = ms[3:] or ms
    print(json.dumps({"case": "ck06", "variant": args.variant, "steps": len(ms), "mean_ms": round(statistics.fmean(body), 3),
                      "median_ms": round(statistics.median(body), 3), "cpu_s": round(time.process_time(), 2)}))


if __name__ == "__main__":
    main()
