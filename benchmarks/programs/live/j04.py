"""Tracking of many targets with particle filters on noisy range measurements."""

import argparse
import time

import torch
from torch.distributions import Categorical, Distribution, MultivariateNormal, Normal, StudentT

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
TARGETS, PARTICLES, WINDOW = (64, 512, 24) if GPU else (3, 16, 4)
STATIONS = 3

if args.variant != "slow":
    Distribution.set_default_validate_args(False)


class Motion:
    """Constant velocity with correlated jitter: the state is (x, y, vx, vy)."""

    def __init__(self, dt=0.1):
        self.matrix = torch.eye(4, device=args.device)
        self.matrix[0, 2] = self.matrix[1, 3] = dt
        spread = torch.tensor([[0.05, 0, 0, 0], [0, 0.05, 0, 0], [0.02, 0, 0.1, 0], [0, 0.02, 0, 0.1]])
        self.spread = spread.to(args.device)

    def advance(self, state):
        return MultivariateNormal(state @ self.matrix.T, scale_tril=self.spread).sample()


class Sensors:
    def __init__(self):
        self.places = torch.randn(STATIONS, 2, device=args.device) * 4

    def distances(self, state):
        return (state[..., None, :2] - self.places).norm(dim=-1)

    def measure(self, truth):
        return Normal(self.distances(truth), 0.1).sample()

    def log_likelihood(self, state, reading):
        expected = self.distances(state)
        heavy = StudentT(4.0, expected, 0.1 + 0.02 * expected)
        return heavy.log_prob(reading[:, None]).sum(-1)


class Filter:
    def __init__(self, motion, sensors, start):
        self.motion, self.sensors = motion, sensors
        around = start[:, None].expand(TARGETS, PARTICLES, 4)
        self.state = Normal(around, 0.3).sample()

    def update(self, reading):
        self.state = self.motion.advance(self.state)
        weights = Categorical(logits=self.sensors.log_likelihood(self.state, reading))
        mean = (weights.probs[..., None] * self.state).sum(1)
        parents = weights.sample((PARTICLES,)).T
        self.state = self.state.gather(1, parents[..., None].expand(-1, -1, 4))
        return mean


@torch.no_grad()
def main():
    torch.manual_seed(0)
    motion, sensors = Motion(), Sensors()
    truth = torch.randn(TARGETS, 4, device=args.device)
    tracker = Filter(motion, sensors, truth)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        errors = torch.zeros(TARGETS, device=args.device)
        for _ in range(WINDOW):
            truth = motion.advance(truth) * 0.999
            estimate = tracker.update(sensors.measure(truth))
            errors += (estimate - truth)[:, :2].norm(dim=-1)
        loss = errors.mean() / WINDOW
        if step % 25 == 0:
            print(f"window {step} mean error {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


main()
