"""Training a gated linear recurrence on long sensor sequences."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
BATCH, LENGTH, WIDTH, SENSORS = (64, 384, 1024, 12) if GPU else (2, 16, 32, 4)


class Recurrence(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(SENSORS, WIDTH)
        self.drive = nn.Linear(SENSORS, WIDTH)
        self.read = nn.Linear(WIDTH, SENSORS)
        nn.init.constant_(self.gate.bias, 2.0)

    def scan(self, keep, push):
        state = push.new_zeros(push.shape[0], WIDTH)
        states = []
        for t in range(push.shape[1]):
            state = torch.addcmul(push[:, t], keep[:, t], state)
            states.append(state)
        return torch.stack(states, 1)

    def forward(self, x):
        keep = torch.sigmoid(self.gate(x))
        push = (1 - keep) * torch.tanh(self.drive(x))
        return self.read(self.scan(keep, push))


class StepwiseRecurrence(Recurrence):
    def scan(self, keep, push):
        state = push.new_zeros(push.shape[0], WIDTH)
        states = []
        for k, p in zip(keep.unbind(1), push.unbind(1)):
            state = torch.addcmul(p, k, state)
            states.append(state)
        return torch.stack(states, 1)


class SensorStream:
    """Sums of sines with random phase; the next reading is the target."""

    def __init__(self):
        self.rates = torch.rand(SENSORS, device=args.device) * 0.3 + 0.02
        self.clock = torch.arange(LENGTH + 1, device=args.device)[None, :, None]

    def batch(self):
        phase = 6.28 * torch.rand(BATCH, 1, SENSORS, device=args.device)
        clean = torch.sin(self.clock * self.rates + phase)
        noisy = clean + 0.05 * torch.randn_like(clean)
        return noisy[:, :-1], clean[:, 1:]


def main():
    torch.manual_seed(0)
    model = (Recurrence if args.variant == "slow" else StepwiseRecurrence)().to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    stream = SensorStream()
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, target = stream.batch()
        loss = F.smooth_l1_loss(model(x), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        schedule.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.6f}")


main()
