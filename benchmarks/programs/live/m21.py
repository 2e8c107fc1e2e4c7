"""Listening for a wake word: short hops of sound, a causal convolution stack."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

BANDS, CHANNELS, LAYERS, KERNEL = 40, 128, 6, 5
HOP, SPAN, STREAMS, WARM = 4, 600, 4, 3
REACH = LAYERS * (KERNEL - 1)


class CausalBlock(nn.Module):
    def __init__(self, channels_in):
        super().__init__()
        self.mix = nn.Conv1d(channels_in, CHANNELS, KERNEL)

    def forward(self, x):
        return F.relu(self.mix(x))


class Detector(nn.Module):
    """Scores of the frames that have their full past in the input."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(CausalBlock(BANDS if i == 0 else CHANNELS) for i in range(LAYERS))
        self.head = nn.Conv1d(CHANNELS, 3, 1)

    def forward(self, frames):
        for block in self.blocks:
            frames = block(frames)
        return self.head(frames).softmax(1)


class Microphones:
    def __init__(self):
        self.colour = torch.randn(BANDS, BANDS) / BANDS**0.5
        self.moment = 0

    def hear(self):
        self.moment += 1
        loud = 1.0 + 0.5 * ((self.moment // 40) % 2)
        return loud * torch.einsum("ij,sjt->sit", self.colour, torch.randn(STREAMS, BANDS, HOP))


class Listener:
    """Keeps the last seconds of every stream for the clip that is stored on an alarm."""

    def __init__(self, detector):
        self.detector = detector
        self.frames = torch.zeros(STREAMS, BANDS, SPAN)
        self.smooth = torch.zeros(STREAMS, 3)
        self.alarms = 0

    def view(self):
        return self.frames

    def push(self, hop):
        self.frames = torch.cat([self.frames[:, :, HOP:], hop], dim=2)
        scores = self.detector(self.view())[:, :, -HOP:]
        for frame in scores.unbind(2):
            self.smooth = 0.9 * self.smooth + 0.1 * frame
        self.alarms += int((self.smooth[:, 2] > 0.8).sum())


class TailListener(Listener):
    def view(self):
        return self.frames[:, :, -(REACH + HOP):]


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    detector = Detector().to(args.device).eval()
    listener = (Listener if args.variant == "slow" else TailListener)(detector)
    microphones = Microphones()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        listener.push(microphones.hear())
        if step % 100 == 0:
            print(f"hop {step} alarms {listener.alarms} level {listener.smooth.mean().item():.4f}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
