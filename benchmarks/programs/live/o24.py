"""Object detection inference on large images: transformer backbone, dense heads, per-class suppression."""
import argparse
import json
import shutil
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import batched_nms

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.heads = dim // 64
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Detector(nn.Module):
    def __init__(self, dim, layers, side, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 16, stride=16)
        self.place = nn.Parameter(torch.randn(1, side * side, dim) * 0.02)
        self.layers = nn.ModuleList([Layer(dim) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.classify = nn.Linear(dim, classes)
        self.box = nn.Linear(dim, 4)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.classify(x).float().sigmoid(), self.box(x).float()


def decode(deltas, centers, size):
    middle = centers + deltas[..., :2].tanh() * 16
    half = deltas[..., 2:].exp().clamp_(max=8) * 16
    return torch.cat([middle - half, middle + half], dim=-1).clamp_(0, size)


def postprocess(scores, boxes, keep_before=1000, keep_after=100):
    """scores [B, N, C], boxes [B, N, 4] -> list of detections on the host."""
    batch, _, classes = scores.shape
    best, flat = scores.flatten(1).topk(min(keep_before, scores[0].numel()), dim=1)
    label = flat % classes
    chosen = boxes.gather(1, (flat // classes).unsqueeze(-1).expand(-1, -1, 4))
    image = torch.arange(batch, device=scores.device).unsqueeze(1).expand_as(label)
    group = (image * classes + label).flatten()
    kept = batched_nms(chosen.flatten(0, 1), best.flatten(), group, 0.6)
    rows = torch.cat([chosen.flatten(0, 1)[kept], best.flatten()[kept, None],
                      label.flatten()[kept, None].float(), image.flatten()[kept, None].float()], dim=1)
    rows = rows.cpu()
    return [rows[rows[:, 6] == i][:keep_after] for i in range(batch)]


def main():
    args = parse_args(["healthy"], 120)
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    dim, layers, side, classes, batch = (1024, 24, 64, 80, 8) if gpu else (64, 2, 4, 5, 2)
    model = Detector(dim, layers, side, classes).to(device).eval().requires_grad_(False)
    if gpu:
        model = model.to(torch.bfloat16)
    forward = torch.compile(model, dynamic=False) if gpu and (shutil.which("gcc") or shutil.which("cc")) else model
    size = side * 16
    axis = torch.arange(side, device=device) * 16.0 + 8.0
    centers = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), dim=-1).view(1, -1, 2)
    pool = [torch.randn(batch, 3, size, size, device=device, dtype=model.place.dtype) for _ in range(4)]
    count = 0
    detections = 0

    @torch.inference_mode()
    def step():
        nonlocal count, detections
        scores, deltas = forward(pool[count % len(pool)])
        count += 1
        detections += sum(len(d) for d in postprocess(scores, decode(deltas, centers, size)))

    run_loop("o24", args, step)


if __name__ == "__main__":
    main()
