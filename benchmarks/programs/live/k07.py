"""Sampling latents from a text-guided denoiser with two guidance branches."""

import argparse
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
TEXT_WIDTH, TEXT_LAYERS, WORDS, LENGTH = (2048, 20, 32_000, 256) if GPU else (32, 2, 100, 8)
WIDTH, LAYERS, HEADS, PATCHES, IMAGES = (1024, 12, 16, 256, 4) if GPU else (32, 2, 4, 16, 2)
LATENT, SCHEDULE, STRENGTH, WARM = 64, 25, 5.0, 4


class Attention(nn.Module):
    def __init__(self, width, source):
        super().__init__()
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.pair = nn.Linear(source, 2 * width)

    def forward(self, x, source):
        q = self.query(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = self.pair(source).unflatten(-1, (2, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, source=None):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.own = Attention(width, width)
        self.other = Attention(width, source) if source else None
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, context=None):
        normed = self.norms[0](x)
        x = x + self.own(normed, normed)
        if self.other is not None:
            x = x + self.other(self.norms[1](x), context)
        return x + self.down(F.gelu(self.up(self.norms[2](x))))


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, TEXT_WIDTH)
        self.blocks = nn.ModuleList([Block(TEXT_WIDTH) for _ in range(TEXT_LAYERS)])

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return x


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet, self.outlet = nn.Linear(LATENT, WIDTH), nn.Linear(WIDTH, LATENT)
        self.clock = nn.Linear(2, WIDTH)
        self.blocks = nn.ModuleList([Block(WIDTH, TEXT_WIDTH) for _ in range(LAYERS)])

    def forward(self, x, moment, context):
        phase = torch.stack([moment, moment.square()], -1).to(x.dtype)
        h = self.inlet(x) + self.clock(phase)[:, None]
        for block in self.blocks:
            h = block(h, context)
        return self.outlet(h)


class Pipeline:
    """One call of `step` takes one denoising step; a new request starts when a schedule ends."""

    def __init__(self):
        with torch.device(args.device):
            torch.set_default_dtype(torch.bfloat16)
            self.encoder, self.denoiser = TextEncoder().eval(), Denoiser().eval()
            torch.set_default_dtype(torch.float32)
        self.place, self.finished = 0, []
        self.open_request()

    def open_request(self):
        asked = torch.randint(1, WORDS, (IMAGES, LENGTH), device=args.device)
        self.prompt = torch.cat([asked, torch.zeros_like(asked)])
        self.latent = torch.randn(IMAGES, PATCHES, LATENT, device=args.device)

    def context(self):
        return self.encoder(self.prompt)

    def guided(self, moment):
        x = self.latent.bfloat16().repeat(2, 1, 1)
        both = self.denoiser(x, moment.repeat(2), self.context())
        wanted, plain = both.float().chunk(2)
        return plain + STRENGTH * (wanted - plain)

    def step(self):
        now = math.cos(0.5 * math.pi * (1 - self.place / SCHEDULE))
        moment = torch.full((IMAGES,), now, device=args.device)
        noise = self.guided(moment)
        self.latent = (self.latent - 0.04 * noise).clamp(-4, 4)
        self.place += 1
        if self.place == SCHEDULE:
            self.finished.append(self.latent.mean())
            self.place = 0
            self.open_request()


class RequestPipeline(Pipeline):
    def open_request(self):
        super().open_request()
        self.held = self.encoder(self.prompt)

    def context(self):
        return self.held


def sync():
    if GPU:
        torch.cuda.synchronize()


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    pipeline = (Pipeline if args.variant == "slow" else RequestPipeline)()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        pipeline.step()
        if step % 100 == 0 and pipeline.finished:
            print(f"step {step} mean {pipeline.finished[-1].item():.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
