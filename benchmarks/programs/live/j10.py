"""Distilling a deep tower of wide layers into a shallower one."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["healthy", "slow", "fixed"], default="healthy")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, TEACHER, STUDENT, ROWS, PARTS, ITEMS = (8192, 6, 3, 8192, 4, 20000) if GPU else (64, 3, 2, 16, 2, 100)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Tower(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(DIM, DIM, bias=False) for _ in range(depth)])
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=(2 / DIM) ** 0.5)

    def forward(self, x):
        taps = {}
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number < len(self.layers) - 1:
                x = F.relu(x)
            taps[f"layer{number}"] = x
        return taps


class Average:
    """Slowly following copy of the student, one tensor after the other."""

    def __init__(self, model, rate):
        self.rate = rate
        self.kept = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def follow(self, model):
        for name, p in model.named_parameters():
            self.kept[name].lerp_(p, self.rate)


class Diary:
    def __init__(self):
        self.lines = []

    def note(self, **entry):
        self.lines.append({k: round(float(v), 5) for k, v in entry.items()})
        recent = sorted(self.lines[-50:], key=lambda e: e["loss"])
        return recent[len(recent) // 2]["loss"]


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(DTYPE)
    with torch.device(args.device):
        teacher, student = Tower(TEACHER).eval(), Tower(STUDENT)
        shelf = torch.randn(ITEMS, DIM)
    opt = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9)
    average, diary = Average(student, 0.01), Diary()
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        opt.zero_grad(set_to_none=False)
        loss_sum = 0.0
        for _ in range(PARTS):
            rows = torch.randint(ITEMS, (ROWS,))
            x = shelf[rows.to(args.device)]
            with torch.no_grad():
                goal = teacher(x)[f"layer{TEACHER - 1}"]
            guess = student(x)[f"layer{STUDENT - 1}"]
            loss = F.mse_loss(guess, goal) / PARTS
            loss.backward()
            loss_sum += loss.item()
        norm = nn.utils.clip_grad_norm_(student.parameters(), 1.0, error_if_nonfinite=True)
        opt.step()
        average.follow(student)
        middle = diary.note(step=step, loss=loss_sum, norm=norm)
        if GPU and step % 25 == 0:
            torch.cuda.empty_cache()
        print(f"step {step} loss {loss_sum:.4f} median {middle:.4f} norm {float(norm):.3f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss_sum:.5f}")


main()
