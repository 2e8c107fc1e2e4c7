"""Deep clustering of speaker vectors: an autoencoder whose codes gather around centres."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
BATCH, INPUT, WIDTH, CODE, CENTRES = (16384, 512, 2048, 64, 1024) if GPU else (64, 32, 64, 8, 16)
WARM = 4


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(INPUT, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CODE)
        )
        self.decode = nn.Sequential(
            nn.Linear(CODE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, INPUT)
        )

    def forward(self, x):
        code = self.encode(x)
        return code, self.decode(code)


class Centres(nn.Module):
    """Student-t membership of codes in clusters."""

    def __init__(self):
        super().__init__()
        self.points = nn.Parameter(torch.randn(CENTRES, CODE))

    def apart(self, code):
        return (code[:, None, :] - self.points).pow(2).sum(-1)

    def forward(self, code):
        near = 1 / (1 + self.apart(code))
        return near / near.sum(1, keepdim=True)


class ProductCentres(Centres):
    def apart(self, code):
        lengths = code.square().sum(1, keepdim=True) + self.points.square().sum(1)
        return torch.addmm(lengths, code, self.points.T, alpha=-2).clamp_min(0)


def sharpen(share):
    """Target membership: squared and balanced over clusters."""
    weight = share.square() / share.sum(0)
    return weight / weight.sum(1, keepdim=True)


class Voices:
    def __init__(self, count=300):
        self.means = 2 * torch.randn(count, INPUT, device=args.device)

    def batch(self):
        who = torch.randint(len(self.means), (BATCH,), device=args.device)
        return self.means[who] + torch.randn(BATCH, INPUT, device=args.device)


class Trainer:
    def __init__(self):
        self.model = Autoencoder().to(args.device)
        self.centres = (Centres if args.variant == "slow" else ProductCentres)().to(args.device)
        weights = [*self.model.parameters(), *self.centres.parameters()]
        self.opt = torch.optim.Adam(weights, lr=2e-4, fused=GPU)
        self.voices = Voices()

    def step(self, index):
        x = self.voices.batch()
        with torch.autocast(args.device, torch.bfloat16):
            code, again = self.model(x)
        rebuilt = F.mse_loss(again.float(), x)
        share = self.centres(code.float())
        gathered = F.kl_div(share.log(), sharpen(share.detach()), reduction="batchmean")
        loss = rebuilt + 0.1 * gathered
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        if index % 50 == 0:
            print(f"step {index} rebuilt {rebuilt.item():.4f} gathered {gathered.item():.4f}", flush=True)


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    trainer = Trainer()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        trainer.step(step)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
