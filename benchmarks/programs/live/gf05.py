"""Trains a query-based object detector with auxiliary decoder losses and on-device target assignment."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gf05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 900
MAX_SECONDS = 42.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=MAX_SECONDS)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)

def to_corners(b):
    c, s = b[..., :2], b[..., 2:]
    return torch.cat([c - s / 2, c + s / 2], dim=-1)


def generalized_iou(a, b):
    area_a = (a[..., 2:] - a[..., :2]).clamp(min=0).prod(-1)
    area_b = (b[..., 2:] - b[..., :2]).clamp(min=0).prod(-1)
    inter = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    union = area_a + area_b - inter
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    return inter / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)


class Assigner:
    def __init__(self, variant, w_class=2.0, w_box=5.0, w_iou=2.0):
        self.variant = variant
        self.w_class, self.w_box, self.w_iou = w_class, w_box, w_iou

    def box_distance(self, boxes, targets):
        if self.variant == "slow":
            return torch.cdist(boxes, targets, p=1)
        return (boxes[:, None] - targets[None]).abs().sum(-1)

    @torch.no_grad()
    def __call__(self, logits, boxes, labels, targets, owner):
        batch, queries, _ = logits.shape
        prob = logits.float().flatten(0, 1).sigmoid()
        flat = boxes.float().flatten(0, 1)
        cost = -self.w_class * prob[:, labels]
        cost += self.w_box * self.box_distance(flat, targets)
        cost -= self.w_iou * generalized_iou(to_corners(flat)[:, None], to_corners(targets)[None])
        image = torch.arange(batch, device=owner.device).repeat_interleave(queries, output_size=batch * queries)
        cost.masked_fill_(image[:, None] != owner[None], float("inf"))
        return cost.argmin(dim=0)


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2, self.n3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o1 = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q, self.kv, self.o2 = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def split(self, x, parts):
        b, n, _ = x.shape
        return x.view(b, n, parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def forward(self, x, memory):
        q, k, v = self.split(self.qkv(self.n1(x)), 3)
        x = x + self.o1(self.merge(F.scaled_dot_product_attention(q, k, v)))
        q, = self.split(self.q(self.n2(x)), 1)
        k, v = self.split(self.kv(memory), 2)
        x = x + self.o2(self.merge(F.scaled_dot_product_attention(q, k, v)))
        return x + self.ff(self.n3(x))


class Detector(nn.Module):
    def __init__(self, dim, queries, classes, layers, heads):
        super().__init__()
        widths = [3, 32, 64, 128, dim]
        self.stem = nn.Sequential(*[nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.GroupNorm(8, b), nn.SiLU())
                                    for a, b in zip(widths[:-1], widths[1:])])
        self.queries = nn.Parameter(torch.randn(queries, dim) * 0.02)
        self.anchors = nn.Parameter(torch.randn(queries, 4) * 0.5)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads) for _ in range(layers))
        self.cls, self.box = nn.Linear(dim, classes), nn.Linear(dim, 4)

    def forward(self, images):
        memory = self.stem(images).flatten(2).transpose(1, 2)
        x = self.queries.expand(images.shape[0], -1, -1)
        outputs = []
        for layer in self.layers:
            x = layer(x, memory)
            outputs.append((self.cls(x), (self.box(x) + self.anchors).sigmoid()))
        return outputs


def layer_loss(assigner, logits, boxes, labels, targets, owner):
    picked = assigner(logits, boxes, labels, targets, owner)
    goal = torch.zeros(logits.shape[0] * logits.shape[1], logits.shape[2], device=logits.device)
    goal[picked, labels] = 1.0
    flat = logits.float().flatten(0, 1)
    prob = flat.sigmoid()
    ce = F.binary_cross_entropy_with_logits(flat, goal, reduction="none")
    focal = (ce * (goal - prob).abs().pow(2)).sum() / labels.numel()
    chosen = boxes.float().flatten(0, 1).index_select(0, picked)
    l1 = (chosen - targets).abs().sum(-1).mean()
    giou = 1 - generalized_iou(to_corners(chosen), to_corners(targets)).mean()
    return 2 * focal + 5 * l1 + 2 * giou


def make_batch(batch, size, per_image, classes, device):
    images = torch.randn(batch, 3, size, size, device=device)
    targets = torch.rand(batch * per_image, 4, device=device) * 0.5 + 0.1
    labels = torch.randint(classes, (batch * per_image,), device=device)
    owner = torch.arange(batch, device=device).repeat_interleave(per_image)
    return images, labels, targets, owner


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    batch, queries, size, per_image = (2, 20, 64, 5) if small else (16, 600, 384, 40)
    classes = 80
    model = Detector(256, queries, classes, layers=6, heads=8).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not small)
    assigner = Assigner(args.variant)
    pool = [make_batch(batch, size, per_image, classes, device) for _ in range(3)]
    seen = [0]

    def step():
        images, labels, targets, owner = pool[seen[0] % len(pool)]
        seen[0] += 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            outputs = model(images)
        loss = sum(layer_loss(assigner, lo, bo, labels, targets, owner) for lo, bo in outputs)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
