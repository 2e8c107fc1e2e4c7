"""Fine-tuning a ViT-L/16 classifier with layer-wise learning-rate decay."""
import argparse
import json
import math
import os
import re
import statistics
import time

import torch
import torch.nn.functional as F
from transformers import ViTConfig, ViTForImageClassification

LAYER = re.compile(r"\.layers?\.(\d+)\.")


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


def layer_index(name, depth):
    found = LAYER.search(name)
    if found:
        return int(found.group(1)) + 1
    return 0 if "embeddings" in name else depth + 1


def no_decay(name, param):
    return param.ndim <= 1 or name.endswith(("cls_token", "position_embeddings"))


def param_settings(model, base_lr, weight_decay, decay, depth):
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        scale = decay ** (depth + 1 - layer_index(name, depth))
        yield name, param, base_lr * scale, 0.0 if no_decay(name, param) else weight_decay


def named_groups(settings):
    return [{"params": [param], "name": name, "lr": lr, "weight_decay": wd}
            for name, param, lr, wd in settings]


def merged_groups(settings):
    groups = {}
    for name, param, lr, wd in settings:
        group = groups.setdefault((lr, wd), {"params": [], "name": name, "lr": lr, "weight_decay": wd})
        group["params"].append(param)
    return list(groups.values())


def warm_cosine(total, warm):
    def factor(step):
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / total)))
    return factor


class FineTuner:
    def __init__(self, device, make_groups):
        self.device = device
        if device == "cuda":
            self.batch, self.size, classes = 24, 224, 1000
            config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                               intermediate_size=4096, image_size=224, patch_size=16, num_labels=classes)
        else:
            self.batch, self.size, classes = 2, 32, 10
            config = ViTConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
                               intermediate_size=64, image_size=32, patch_size=8, num_labels=classes)
        config._attn_implementation = "sdpa"
        self.model = ViTForImageClassification(config).to(device).train()
        settings = param_settings(self.model, 5e-4, 0.05, 0.75, config.num_hidden_layers)
        self.optimizer = torch.optim.AdamW(make_groups(settings), fused=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, warm_cosine(20000, 200))
        self.mean = torch.tensor([123.7, 116.3, 103.5], device=device).view(1, 3, 1, 1)
        self.std = torch.tensor([58.4, 57.1, 57.4], device=device).view(1, 3, 1, 1)
        gen = torch.Generator().manual_seed(0)
        self.pool = []
        for _ in range(6):
            images = torch.randint(0, 256, (self.batch, 3, self.size, self.size), generator=gen, dtype=torch.uint8)
            labels = torch.randint(0, classes, (self.batch,), generator=gen)
            if device == "cuda":
                images, labels = images.pin_memory(), labels.pin_memory()
            self.pool.append((images, labels))

    def step(self, i):
        images, labels = self.pool[i % len(self.pool)]
        images = images.to(self.device, non_blocking=True)
        labels = labels.to(self.device, non_blocking=True)
        pixels = (images.float() - self.mean) / self.std
        with torch.autocast(self.device, dtype=torch.bfloat16):
            logits = self.model(pixel_values=pixels).logits
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)


def main():
    args = parse_args(["slow", "fixed"], 180)
    torch.manual_seed(0)
    make_groups = {"slow": named_groups, "fixed": merged_groups}[args.variant]
    run_loop(args, FineTuner(args.device, make_groups).step, warmup=5)


if __name__ == "__main__":
    main()
