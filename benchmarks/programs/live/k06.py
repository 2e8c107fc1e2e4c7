"""Training a latent super-resolution trunk of wide convolutions."""

import argparse
import gc
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
WIDTH, DEPTH, SIDE, BATCH, LATENT = (1024, 8, 64, 16, 64) if GPU else (32, 3, 16, 2, 8)
WARM = 5
torch.backends.cudnn.benchmark = True


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Conv2d(LATENT, WIDTH, 3, padding=1, bias=False)
        self.body = nn.ModuleList([nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False) for _ in range(DEPTH)])
        self.outlet = nn.Conv2d(WIDTH, LATENT, 3, padding=1, bias=False)
        for conv in self.body:
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")

    def forward(self, x):
        h = F.relu(self.inlet(x), inplace=True)
        for conv in self.body:
            h = F.relu(conv(h), inplace=True)
        return self.outlet(h)


class Degradation:
    """Sharp latents and their blurred, noisy versions, drawn on the host."""

    def __init__(self):
        self.mixer = torch.Generator().manual_seed(3)

    def draw(self):
        coarse = torch.randn(BATCH, LATENT, SIDE // 8, SIDE // 8, generator=self.mixer)
        coarse = coarse.to(args.device)
        sharp = F.interpolate(coarse, scale_factor=8, mode="bilinear")
        blurred = F.avg_pool2d(sharp, 3, 1, 1)
        return self.place(blurred + 0.05 * torch.randn_like(blurred)), self.place(sharp)

    @staticmethod
    def place(x):
        return x.to(torch.bfloat16, memory_format=torch.channels_last)


class Journal:
    def __init__(self, folder):
        self.path, self.values = os.path.join(folder, "journal.txt"), []

    def note(self, step, loss, norm):
        self.values.append(loss)
        with open(self.path, "a") as out:
            out.write(f"{step} {loss:.5f} {norm:.5f} {sum(self.values) / len(self.values):.5f}\n")
            out.flush()


class Trainer:
    def __init__(self, folder):
        self.model = Trunk().to(args.device, torch.bfloat16).to(memory_format=torch.channels_last)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-5, fused=GPU)
        self.source, self.journal = Degradation(), Journal(folder)
        self.keep = os.path.join(folder, "outlet.pt")

    def step(self, index):
        blurred, sharp = self.source.draw()
        loss = F.mse_loss(blurred + self.model(blurred), sharp)
        self.opt.zero_grad(set_to_none=False)
        loss.backward()
        norm = self.model.outlet.weight.grad.norm().item()
        self.opt.step()
        self.journal.note(index, loss.item(), norm)
        if index % 10 == 0:
            torch.save(self.model.outlet.state_dict(), self.keep)
            gc.collect(0)
            print(f"step {index} loss {loss.item():.5f}", flush=True)


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(folder)
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
