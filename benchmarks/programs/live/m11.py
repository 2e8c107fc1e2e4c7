"""Training a fraud classifier and following its ranking quality."""

import argparse
import collections
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
BATCH, INPUTS, HIDDEN = (65_536, 128, 1024) if GPU else (256, 16, 32)
WINDOW = 400 if GPU else 20
REPORT, WARM = 50, 5


def sync():
    if GPU:
        torch.cuda.synchronize()


class Payments:
    def __init__(self):
        self.direction = torch.randn(INPUTS, device=args.device)

    def batch(self):
        x = torch.randn(BATCH, INPUTS, device=args.device)
        fraud = (x @ self.direction + 4 * torch.randn(BATCH, device=args.device) > 15).float()
        return x, fraud


class Ranking:
    """Area under the curve over the last batches; starts with those of the last session."""

    def __init__(self):
        self.scores, self.labels = collections.deque(maxlen=WINDOW), collections.deque(maxlen=WINDOW)
        for _ in range(WINDOW):
            self.scores.append(torch.randn(BATCH, device=args.device))
            self.labels.append((torch.rand(BATCH, device=args.device) < 0.1).float())

    def update(self, scores, labels):
        self.scores.append(scores)
        self.labels.append(labels)

    def compute(self):
        scores, labels = torch.cat(tuple(self.scores)), torch.cat(tuple(self.labels))
        order = scores.argsort(descending=True)
        found = labels[order].double().cumsum(0)
        missed = torch.arange(1, len(found) + 1, device=found.device) - found
        return torch.trapezoid(found, missed) / (found[-1] * missed[-1])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


class Session:
    def __init__(self):
        self.payments, self.ranking = Payments(), Ranking()
        self.model = Classifier().to(args.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=GPU)

    def train(self):
        x, fraud = self.payments.batch()
        scores = self.model(x)
        loss = F.binary_cross_entropy_with_logits(scores, fraud)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.ranking.update(scores.detach(), fraud)
        return loss.detach()

    def metrics(self, step, loss):
        values = {"loss": loss}
        if args.variant == "slow" or step % REPORT == 0:
            values["area"] = self.ranking.compute()
        return values


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    session = Session()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        loss = session.train()
        values = session.metrics(step, loss)
        if step % REPORT == 0:
            shown = " ".join(f"{name} {value.item():.4f}" for name, value in values.items())
            print(f"step {step} {shown}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
