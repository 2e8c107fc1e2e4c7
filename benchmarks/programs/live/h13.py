"""Feature-space distillation of a wide teacher MLP into a narrower student, streamed inputs."""

import argparse
import queue
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def tower(d_in, width, d_out):
    return nn.Sequential(
        nn.Linear(d_in, width),
        nn.ReLU(inplace=True),
        nn.Linear(width, width),
        nn.ReLU(inplace=True),
        nn.Linear(width, d_out),
    )


class Feeder(threading.Thread):
    """Background thread that hands out host batches from a ring of shards."""

    def __init__(self, batch, dim, dtype, pinned, depth=4, shards=6):
        super().__init__(daemon=True)
        g = torch.Generator().manual_seed(9)
        self.ring = [torch.randn(batch, dim, generator=g).to(dtype) for _ in range(shards)]
        if pinned:
            self.ring = [r.pin_memory() for r in self.ring]
        self.out = queue.Queue(maxsize=depth)
        self.halt = threading.Event()

    def run(self):
        n = 0
        while not self.halt.is_set():
            try:
                self.out.put(self.ring[n % len(self.ring)], timeout=0.5)
                n += 1
            except queue.Full:
                continue


class Uploader:
    def __init__(self, feeder, device):
        self.feeder, self.device = feeder, device
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        self.ready = None
        self._start()

    def _start(self):
        host = self.feeder.out.get()
        if self.stream is None:
            self.ready = host
            return
        with torch.cuda.stream(self.stream):
            self.ready = host.to(self.device, non_blocking=True)

    def next(self):
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            self.ready.record_stream(torch.cuda.current_stream())
        batch = self.ready
        self._start()
        return batch


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=650)
    ap.add_argument("--max-seconds", type=float, default=36)
    args = ap.parse_args()
    gpu = args.device == "cuda"
    batch, d_in, student_w, teacher_w, d_out = (
        (8192, 4096, 16384, 24576, 1024) if gpu else (64, 32, 64, 96, 10)
    )
    dtype = torch.bfloat16 if gpu else torch.float32
    torch.manual_seed(2)
    feeder = Feeder(batch, d_in, dtype, pinned=gpu)
    feeder.start()
    torch.set_default_dtype(dtype)
    with torch.device(args.device):
        teacher, student = tower(d_in, teacher_w, d_out), tower(d_in, student_w, d_out)
    teacher.eval().requires_grad_(False)
    opt = torch.optim.AdamW(student.parameters(), lr=3e-5, fused=gpu)
    up = Uploader(feeder, args.device)
    temperature, log = 2.0, []
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        x = up.next()
        x = x + 0.1 * torch.randn_like(x)
        with torch.no_grad():
            soft = F.softmax(teacher(x).float() * 20 / temperature, dim=-1)
        pred = F.log_softmax(student(x).float() * 20 / temperature, dim=-1)
        loss = F.kl_div(pred, soft, reduction="batchmean") * temperature**2
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 0:
            log.append(loss.item())
            print(f"step {step} kl {log[-1]:.5f}", flush=True)
        if step % 100 == 0 and gpu:
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            print(f"memory in use {(total - free) / 2**30:.1f} GiB", flush=True)
        if time.perf_counter() - t0 > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - t0
    feeder.halt.set()
    feeder.join()
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
