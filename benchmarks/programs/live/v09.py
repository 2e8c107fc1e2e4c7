"""End-to-end set-prediction detector: convolutional stem, transformer encoder, query decoder."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class DetrConfig:
    image: int = 640
    batch: int = 16
    dim: int = 256
    heads: int = 8
    ffn: int = 1024
    encoder_layers: int = 6
    decoder_layers: int = 3
    queries: int = 300
    classes: int = 80
    objects: int = 12
    dropout: float = 0.0
    keep_maps: bool = True


class ConvNormAct(nn.Sequential):
    def __init__(self, cin, cout, stride):
        super().__init__(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.SiLU(inplace=True))


class Stem(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(ConvNormAct(3, dim // 8, 2), ConvNormAct(dim // 8, dim // 4, 2),
                                 ConvNormAct(dim // 4, dim // 2, 2), ConvNormAct(dim // 2, dim, 2))

    def forward(self, x):
        return self.net(x)


def grid_embedding(h, w, dim, device, temperature=10000.0):
    ys, xs = torch.meshgrid(torch.arange(h, device=device), torch.arange(w, device=device), indexing="ij")
    omega = 1.0 / temperature ** (torch.arange(dim // 4, device=device).float() / (dim // 4))
    parts = [f(c.flatten()[:, None].float() * omega) for c in (xs, ys) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, dim=1)[None]


class Attention(nn.Module):
    """Residual attention sub-layer around nn.MultiheadAttention."""

    def __init__(self, cfg: DetrConfig):
        super().__init__()
        self.options = {} if cfg.keep_maps else {"need_weights": False}
        self.mha = nn.MultiheadAttention(cfg.dim, cfg.heads, dropout=cfg.dropout, batch_first=True)
        self.norm = nn.LayerNorm(cfg.dim)

    def forward(self, x, query, key, value):
        out, _ = self.mha(query, key, value, **self.options)
        return self.norm(x + out)


class FeedForward(nn.Module):
    def __init__(self, cfg: DetrConfig):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cfg.dim, cfg.ffn), nn.GELU(), nn.Linear(cfg.ffn, cfg.dim))
        self.norm = nn.LayerNorm(cfg.dim)

    def forward(self, x):
        return self.norm(x + self.net(x))


class EncoderLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attn, self.ffn = Attention(cfg), FeedForward(cfg)

    def forward(self, x, pos):
        q = x + pos
        return self.ffn(self.attn(x, q, q, x))


class DecoderLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.self_attn, self.cross, self.ffn = Attention(cfg), Attention(cfg), FeedForward(cfg)

    def forward(self, x, qpos, memory, mpos):
        q = x + qpos
        x = self.self_attn(x, q, q, x)
        return self.ffn(self.cross(x, x + qpos, memory + mpos, memory))


class Detector(nn.Module):
    def __init__(self, cfg: DetrConfig):
        super().__init__()
        self.stem = Stem(cfg.dim)
        self.encoder = nn.ModuleList(EncoderLayer(cfg) for _ in range(cfg.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(cfg) for _ in range(cfg.decoder_layers))
        self.query = nn.Parameter(torch.randn(1, cfg.queries, cfg.dim))
        self.qpos = nn.Parameter(torch.randn(1, cfg.queries, cfg.dim))
        side = cfg.image // 16
        self.register_buffer("pos", grid_embedding(side, side, cfg.dim, "cpu"))
        self.cls = nn.Linear(cfg.dim, cfg.classes)
        self.box = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.ReLU(), nn.Linear(cfg.dim, 4))

    def forward(self, images):
        x = self.stem(images).flatten(2).transpose(1, 2)
        for layer in self.encoder:
            x = layer(x, self.pos)
        h, outputs = self.query.expand(images.shape[0], -1, -1), []
        for layer in self.decoder:
            h = layer(h, self.qpos, x, self.pos)
            outputs.append((self.cls(h), self.box(h).sigmoid()))
        return outputs


class SetLoss:
    """One-to-one assignment by mutual best match, computed on the device."""

    def __init__(self, cfg: DetrConfig):
        self.cfg = cfg

    @torch.no_grad()
    def match(self, logits, boxes, labels, goal):
        prob = logits.float().sigmoid()
        cost = -prob.gather(2, labels[:, None, :].expand(-1, prob.shape[1], -1)) + 5.0 * torch.cdist(boxes.float(), goal, p=1)
        return cost.argmin(dim=1)

    def __call__(self, outputs, labels, goal):
        total = 0.0
        for logits, boxes in outputs:
            which = self.match(logits, boxes, labels, goal)
            target = torch.zeros_like(logits, dtype=torch.float32)
            target[torch.arange(which.shape[0], device=which.device)[:, None], which, labels] = 1.0
            chosen = boxes.float().gather(1, which[..., None].expand(-1, -1, 4))
            total = total + F.binary_cross_entropy_with_logits(logits.float(), target) * 20 + 5 * F.l1_loss(chosen, goal)
        return total


class FramePool:
    def __init__(self, cfg: DetrConfig, device, size=64):
        self.cfg, self.device = cfg, device
        self.frames = torch.randint(0, 256, (size, 3, cfg.image, cfg.image), dtype=torch.uint8, device=device).contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, cfg.classes, (size, cfg.objects), device=device)
        self.boxes = torch.rand(size, cfg.objects, 4, device=device)

    def draw(self):
        idx = torch.randint(0, self.labels.shape[0], (self.cfg.batch,), device=self.device)
        images = self.frames[idx].to(torch.bfloat16).mul_(1 / 255.0)
        return images, self.labels[idx], self.boxes[idx]


class Loop:
    def __init__(self, cfg: DetrConfig, device):
        self.device, self.pool, self.criterion = device, FramePool(cfg, device, 64 if device.type == "cuda" else 4), SetLoss(cfg)
        self.model = Detector(cfg).to(device).to(memory_format=torch.channels_last)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=1e-4, fused=device.type == "cuda")

    def step(self):
        images, labels, boxes = self.pool.draw()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            outputs = self.model(images)
        loss = self.criterion(outputs, labels, boxes)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg = DetrConfig(keep_maps=args.variant == "slow")
    if device.type == "cpu":
        cfg.image, cfg.batch, cfg.dim, cfg.heads, cfg.ffn, cfg.encoder_layers, cfg.decoder_layers, cfg.queries = 64, 2, 32, 4, 64, 2, 1, 20
    loop = Loop(cfg, device)
    for _ in range(5 if device.type == "cuda" else 1):
        loop.step()
    flush = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    flush()
    t0, laps = time.perf_counter(), []
    for _ in range(args.steps):
        lap = time.perf_counter()
        loop.step()
        laps.append(time.perf_counter() - lap)
        if time.perf_counter() - t0 > args.max_seconds:
            break
    flush()
    total = time.perf_counter() - t0
    print(json.dumps({"program": "v09", "variant": args.variant, "steps": len(laps), "step_ms_mean": total / len(laps) * 1e3,
                      "step_ms_median": statistics.median(laps) * 1e3}), flush=True)
    if args.trace:
        kinds = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else [])
        sched = torch.profiler.schedule(wait=0, warmup=2, active=4)
        with torch.profiler.profile(activities=kinds, schedule=sched, record_shapes=True, with_stack=True, with_modules=True,
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                loop.step()
                prof.step()


if __name__ == "__main__":
    main()
