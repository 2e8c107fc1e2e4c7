"""Training of a message-passing interatomic potential on periodic boxes of organic molecules."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gm01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 500
WARMUP = 4

SPECIES = ["H", "C", "N", "O", "S"]
ABUNDANCE = [0.40, 0.32, 0.10, 0.14, 0.04]


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


class Box:
    """Atoms with a fixed neighbour list; positions are jittered every time it is drawn."""

    def __init__(self, atoms, degree, device, generator):
        weights = torch.tensor(ABUNDANCE)
        self.z = torch.multinomial(weights, atoms, replacement=True, generator=generator)
        offsets = torch.randint(1, 200, (atoms, degree), generator=generator)
        receiver = torch.arange(atoms).repeat_interleave(degree)
        sender = (receiver + offsets.reshape(-1)) % atoms
        self.rest = torch.randn(receiver.numel(), 3, generator=generator) * 1.8
        self.pair = self.z[sender] * len(SPECIES) + self.z[receiver]
        self.energy = torch.randn((), generator=generator)
        self.sender, self.receiver = sender.to(device), receiver.to(device)
        self.z, self.rest = self.z.to(device), self.rest.to(device)
        self.pair, self.energy = self.pair.to(device), self.energy.to(device)

    def draw(self):
        vectors = self.rest + 0.02 * torch.randn_like(self.rest)
        return vectors, vectors.norm(dim=-1).clamp_min(1e-3)


class RadialBasis(nn.Module):
    def __init__(self, count, cutoff):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0.0, cutoff, count))
        self.gamma = (count / cutoff) ** 2

    def forward(self, r):
        envelope = 0.5 * (torch.cos(r * (math.pi / self.cutoff)).clamp_min(-1) + 1) * (r < self.cutoff)
        return torch.exp(-self.gamma * (r[:, None] - self.centres) ** 2) * envelope[:, None]


class PairExpansion(nn.Module):
    """Radial functions whose expansion coefficients belong to the two species at the ends."""

    def __init__(self, pairs, count, cutoff, variant):
        super().__init__()
        self.basis = RadialBasis(count, cutoff)
        self.coefficients = nn.Parameter(1 + 0.1 * torch.randn(pairs, count))
        self.variant = variant

    def forward(self, r, pair):
        if self.variant == "fixed":
            c = F.embedding(pair, self.coefficients)
        else:
            c = self.coefficients[pair]
        return self.basis(r) * c


class Interaction(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(count, width), nn.SiLU(), nn.Linear(width, width))
        self.inward = nn.Linear(width, width, bias=False)
        self.outward = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, h, features, sender, receiver):
        message = self.inward(h).index_select(0, sender) * self.filter(features)
        gathered = torch.zeros_like(h).index_add(0, receiver, message)
        return h + self.outward(self.norm(gathered))


class Potential(nn.Module):
    def __init__(self, width, count, layers, variant, cutoff=5.0):
        super().__init__()
        self.atoms = nn.Embedding(len(SPECIES), width)
        self.expansion = PairExpansion(len(SPECIES) ** 2, count, cutoff, variant)
        self.layers = nn.ModuleList(Interaction(width, count) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU(), nn.Linear(width // 2, 1))

    def forward(self, box, r):
        features = self.expansion(r, box.pair)
        h = self.atoms(box.z)
        for layer in self.layers:
            h = layer(h, features, box.sender, box.receiver)
        return self.readout(h).mean()


class Fitter:
    def __init__(self, model, boxes):
        self.model, self.boxes = model, boxes
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=boxes[0].z.is_cuda)
        self.average = torch.zeros((), device=boxes[0].z.device)
        self.count = 0

    def one(self):
        box = self.boxes[self.count % len(self.boxes)]
        _, r = box.draw()
        loss = F.smooth_l1_loss(self.model(box, r), box.energy)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.average.lerp_(loss.detach(), 0.02)
        self.count += 1
        if self.count % 100 == 0:
            print(f"step {self.count} loss {self.average.item():.4f}", flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    g = torch.Generator().manual_seed(1)
    small = device.type == "cpu"
    atoms, degree, width = (400, 8, 32) if small else (10000, 32, 128)
    boxes = [Box(atoms, degree, device, g) for _ in range(4)]
    model = Potential(width, 48, 4, args.variant).to(device)
    fitter = Fitter(model, boxes)
    run_loop(args, device, fitter.one)


if __name__ == "__main__":
    main()
