"""Distillation of a compact image classifier with spatial attention maps of a larger teacher."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ga10"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 360
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
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


class Residual(nn.Module):
    def __init__(self, fan_in, fan_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(fan_out)
        self.skip = nn.Identity()
        if stride != 1 or fan_in != fan_out:
            self.skip = nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False), nn.BatchNorm2d(fan_out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x), inplace=True)


class Classifier(nn.Module):
    def __init__(self, widths, depth, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 2, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        fan, stages = widths[0], []
        for i, width in enumerate(widths):
            blocks = [Residual(fan, width, 1 if i == 0 else 2)]
            blocks += [Residual(width, width, 1) for _ in range(depth - 1)]
            stages.append(nn.Sequential(*blocks))
            fan = width
        self.stages = nn.ModuleList(stages)
        self.head = nn.Linear(fan, classes)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean((2, 3)))


def attention_map(features):
    energy = features.float().pow(2).mean(1).flatten(1)
    return F.normalize(energy, dim=1)


class MapReader:
    """Runs a network and returns its output together with one map for each stage."""

    def __init__(self, network, variant):
        self.network, self.variant = network, variant

    def watch(self, maps):
        def keep(name):
            def hook(module, inputs, output):
                maps[name] = attention_map(output)
            return hook
        return [stage.register_forward_hook(keep(f"stage{i}")) for i, stage in enumerate(self.network.stages)]

    def __call__(self, images):
        maps = {}
        handles = self.watch(maps)
        output = self.network(images)
        if self.variant == "fixed":
            for handle in handles:
                handle.remove()
        return output, maps


class DistillLoss(nn.Module):
    def __init__(self, temperature=4.0, soft=0.7, spatial=50.0):
        super().__init__()
        self.temperature, self.soft, self.spatial = temperature, soft, spatial

    def forward(self, student, teacher, labels):
        (logits, maps), (wanted, wanted_maps) = student, teacher
        t = self.temperature
        kd = F.kl_div(F.log_softmax(logits.float() / t, 1), F.log_softmax(wanted.float() / t, 1),
                      reduction="batchmean", log_target=True) * t * t
        hard = F.cross_entropy(logits.float(), labels)
        spatial = sum((maps[n] - wanted_maps[n]).pow(2).mean() for n in wanted_maps)
        return self.soft * kd + (1 - self.soft) * hard + self.spatial * spatial


def flip_and_shift(images):
    if torch.rand(()) < 0.5:
        images = images.flip(-1)
    dy, dx = torch.randint(-4, 5, (2,)).tolist()
    return images.roll((dy, dx), dims=(2, 3))


class Distiller:
    def __init__(self, student, teacher, variant, device, batch, side, classes):
        self.device = device
        self.teacher_reader = MapReader(teacher.eval().requires_grad_(False), variant)
        self.student_reader = MapReader(student, variant)
        self.criterion = DistillLoss()
        self.optimizer = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9, nesterov=True)
        self.images = torch.randn(4 * batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, classes, (4 * batch,), device=device)
        self.batch, self.turn = batch, 0

    def next_batch(self):
        lo = (self.turn % 4) * self.batch
        self.turn += 1
        return flip_and_shift(self.images[lo:lo + self.batch]), self.labels[lo:lo + self.batch]

    def train_step(self):
        images, labels = self.next_batch()
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            with torch.no_grad():
                teacher = self.teacher_reader(images)
            student = self.student_reader(images)
            loss = self.criterion(student, teacher, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    batch, side = (32, 96) if on_gpu else (2, 32)
    small, large = ((48, 96, 192, 384), (96, 192, 384, 768)) if on_gpu else ((8, 16), (8, 16))
    student = Classifier(small, 2, 100).to(device, memory_format=torch.channels_last)
    teacher = Classifier(large, 2, 100).to(device, memory_format=torch.channels_last)
    distiller = Distiller(student, teacher, args.variant, device, batch, side, 100)
    run_loop(args, device, distiller.train_step)


if __name__ == "__main__":
    main()
