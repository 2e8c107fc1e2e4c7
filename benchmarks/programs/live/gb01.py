"""Stochastic EM for a full-covariance mixture over streamed frame features (acoustic background model)."""
import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass

import torch

PROGRAM = "gb01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 450
WARMUP = 4


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
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


@dataclass
class MixtureConfig:
    components: int
    dim: int
    frames: int
    chunk: int
    forget: float = 0.9
    ridge: float = 1e-3


class FrameStream:
    """Endless blocks of synthetic frames drawn from a fixed pool of correlated sources."""

    def __init__(self, cfg, device, sources=24, seed=0):
        self.cfg, self.device = cfg, device
        self.gen = torch.Generator(device=device).manual_seed(seed)
        scale = 1.0 / math.sqrt(cfg.dim)
        self.mixers = torch.randn(sources, cfg.dim, cfg.dim, device=device, generator=self.gen) * scale
        self.centres = torch.randn(sources, cfg.dim, device=device, generator=self.gen) * 2.0

    def next_block(self):
        sources = self.centres.shape[0]
        per = self.cfg.frames // sources + 1
        white = torch.randn(sources, per, self.cfg.dim, device=self.device, generator=self.gen)
        frames = torch.baddbmm(self.centres.unsqueeze(1), white, self.mixers)
        return frames.reshape(-1, self.cfg.dim)[: self.cfg.frames]


class FullCovarianceMixture:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device, self.variant = cfg, device, variant
        k, d = cfg.components, cfg.dim
        gen = torch.Generator(device=device).manual_seed(1)
        self.mean = torch.randn(k, d, device=device, generator=gen)
        self.cov = torch.eye(d, device=device).repeat(k, 1, 1) * 2.0
        self.log_weight = torch.full((k,), -math.log(k), device=device)
        self.s0 = torch.full((k,), 1.0 / k, device=device)
        self.s1 = self.s0[:, None] * self.mean
        self.s2 = self.s0[:, None, None] * (self.cov + self.mean[:, :, None] * self.mean[:, None, :])
        self.eye = torch.eye(d, device=device)

    def whitening(self):
        """Per component a matrix W with W Wᵀ = Σ⁻¹, and log|Σ|."""
        cov = self.cov + self.cfg.ridge * self.eye
        if self.variant == "slow":
            values, vectors = torch.linalg.eigh(cov)
            values = values.clamp_min(1e-8)
            return vectors * values.rsqrt().unsqueeze(-2), values.log().sum(-1)
        factor = torch.linalg.cholesky(cov)
        inverse = torch.linalg.solve_triangular(factor, self.eye.expand_as(factor), upper=False)
        return inverse.mT, 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_joint(self, frames, white, log_det, shift):
        k, d = self.cfg.components, self.cfg.dim
        projected = torch.addmm(-shift.reshape(1, -1), frames, white.permute(1, 0, 2).reshape(d, k * d))
        quad = torch.linalg.vector_norm(projected.view(-1, k, d), dim=-1).square_()
        return self.log_weight - 0.5 * (quad + log_det + d * math.log(2 * math.pi))

    def statistics_of(self, frames, white, log_det):
        k, d = self.cfg.components, self.cfg.dim
        shift = torch.bmm(self.mean.unsqueeze(1), white).squeeze(1)
        n0 = torch.zeros(k, device=self.device)
        n1 = torch.zeros(k, d, device=self.device)
        n2 = torch.zeros(k, d, d, device=self.device)
        loglik = torch.zeros((), device=self.device)
        for part in frames.split(self.cfg.chunk):
            joint = self.log_joint(part, white, log_det, shift)
            evidence = torch.logsumexp(joint, dim=1, keepdim=True)
            resp = (joint - evidence).exp_()
            loglik += evidence.sum()
            n0 += resp.sum(0)
            n1 += resp.mT @ part
            weighted = (resp.unsqueeze(-1) * part.unsqueeze(1)).reshape(part.shape[0], k * d)
            n2 += (weighted.mT @ part).view(k, d, d)
        total = frames.shape[0]
        return n0 / total, n1 / total, n2 / total, loglik / total

    def absorb(self, n0, n1, n2):
        keep = self.cfg.forget
        self.s0.mul_(keep).add_(n0, alpha=1 - keep)
        self.s1.mul_(keep).add_(n1, alpha=1 - keep)
        self.s2.mul_(keep).add_(n2, alpha=1 - keep)

    def maximise(self):
        occupancy = self.s0.clamp_min(1e-6)
        self.mean = self.s1 / occupancy[:, None]
        second = self.s2 / occupancy[:, None, None]
        cov = second - self.mean[:, :, None] * self.mean[:, None, :]
        self.cov = 0.5 * (cov + cov.mT) + 1e-2 * self.eye
        self.log_weight = (occupancy / occupancy.sum()).log()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    cfg = MixtureConfig(64, 64, 262144, 65536) if big else MixtureConfig(8, 16, 2048, 1024)
    stream = FrameStream(cfg, device)
    mixture = FullCovarianceMixture(cfg, device, args.variant)
    history, counter = [], [0]

    def step():
        frames = stream.next_block()
        white, log_det = mixture.whitening()
        n0, n1, n2, loglik = mixture.statistics_of(frames, white, log_det)
        mixture.absorb(n0, n1, n2)
        mixture.maximise()
        counter[0] += 1
        if counter[0] % 25 == 0:
            history.append(float(loglik))

    run_loop(args, device, step)
    if history:
        print(json.dumps({"avg_loglik": round(history[-1], 4)}))


if __name__ == "__main__":
    main()
