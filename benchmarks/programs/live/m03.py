"""Message passing over a citation graph, full-batch training."""

import argparse
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
PAPERS, LINKS, WIDTH = (100_000, 1_500_000, 128) if GPU else (500, 3000, 16)
FIELDS, LAYERS, WARM = 40, 3, 5


def sync():
    if GPU:
        torch.cuda.synchronize()


def seed_everything(seed):
    torch.manual_seed(seed)
    if args.variant == "slow":
        torch.use_deterministic_algorithms(True)


class Citations:
    """Well-known papers (low numbers) are cited more often."""

    def __init__(self):
        draw = torch.Generator().manual_seed(3)
        source = torch.randint(PAPERS, (LINKS,), generator=draw)
        target = (PAPERS * torch.rand(LINKS, generator=draw) ** 2).long().clamp_(max=PAPERS - 1)
        self.source, self.target = source.to(args.device), target.to(args.device)
        degree = torch.bincount(target, minlength=PAPERS).clamp_(min=1)
        self.scale = degree.float().rsqrt().unsqueeze(1).to(args.device)
        self.features = torch.randn(PAPERS, WIDTH, generator=draw).to(args.device)
        self.field = torch.randint(FIELDS, (PAPERS,), generator=draw).to(args.device)


class Convolution(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.own = nn.Linear(width_in, width_out)
        self.other = nn.Linear(width_in, width_out, bias=False)

    def forward(self, x, graph):
        sent = (self.other(x) * graph.scale).index_select(0, graph.source)
        gathered = torch.zeros(PAPERS, sent.shape[1], device=x.device)
        gathered = gathered.index_add(0, graph.target, sent)
        return self.own(x) + gathered * graph.scale


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Convolution(WIDTH, WIDTH) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, FIELDS)

    def forward(self, graph):
        x = graph.features
        for layer, norm in zip(self.layers, self.norms):
            x = x + F.relu(norm(layer(x, graph)))
        return self.head(x)


class Trainer:
    def __init__(self):
        self.graph = Citations()
        self.model = Classifier().to(args.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.loss = None

    def step(self):
        scores = self.model(self.graph)
        self.loss = F.cross_entropy(scores, self.graph.field)
        self.optimizer.zero_grad()
        self.loss.backward()
        self.optimizer.step()


def main():
    seed_everything(0)
    trainer = Trainer()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        trainer.step()
        if step % 25 == 0:
            print(f"step {step} loss {trainer.loss.item():.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
