"""Weather emulator: one-step forecast of a reduced atmosphere state by a wide MLP."""

import argparse
import copy
import gc
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=45)
parser.add_argument("--max-seconds", type=float, default=14)
args = parser.parse_args()

GPU = args.device == "cuda"
STATE, DIM, BLOCKS, ROWS = (128, 8192, 3, 12288) if GPU else (16, 32, 2, 24)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x), approximate="tanh"))


class Emulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(STATE, DIM)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.write = nn.Linear(DIM, STATE)

    def forward(self, state):
        return state + self.write(self.blocks(self.read(state)))


class Watch:
    """Gradient magnitudes by parameter, gathered by hooks while the backward pass runs."""

    def __init__(self, model):
        self.values = {}
        for name, p in model.named_parameters():
            p.register_post_accumulate_grad_hook(self.make_hook(name))

    def make_hook(self, name):
        def hook(p):
            self.values[name] = p.grad.norm()

        return hook

    def largest(self):
        return max((float(v), k) for k, v in self.values.items())


class Reanalysis:
    def __init__(self, times):
        rng = np.random.default_rng(1)
        walk = rng.standard_normal((times, STATE), dtype=np.float32).cumsum(0) * 0.05
        self.fields = np.sin(walk).astype(np.float16)
        self.rng = rng

    def __iter__(self):
        while True:
            at = self.rng.integers(0, len(self.fields) - 1, ROWS)
            yield torch.from_numpy(self.fields[at]), torch.from_numpy(self.fields[at + 1])


@torch.no_grad()
def blend(average, model, keep=0.98):
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - keep)


def main():
    torch.manual_seed(9)
    with torch.device(args.device):
        model = Emulator().to(DTYPE)
    average = copy.deepcopy(model)
    watch = Watch(model)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=GPU)
    begin = time.perf_counter()
    step = 0
    for now, later in Reanalysis(20_000):
        now, later = now.to(args.device).to(DTYPE), later.to(args.device).to(DTYPE)
        loss = F.smooth_l1_loss(model(now), later)
        opt.zero_grad(set_to_none=False)
        loss.backward()
        opt.step()
        value = loss.item()
        step += 1
        if step % 5 == 0:
            blend(average, model)
            size, name = watch.largest()
            print(f"step {step} loss {value:.5f} steepest {name} {size:.3e}", flush=True)
        if step % 15 == 0:
            gc.collect()
        if step >= args.steps or time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={value:.5f}")


if __name__ == "__main__":
    main()
