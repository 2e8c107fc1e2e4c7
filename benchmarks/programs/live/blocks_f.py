"""Small helpers shared by the example programs."""
import argparse
import statistics
import time


def parse(variants, **extra):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--tiny", action="store_true")
    for name, value in extra.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    return p.parse_args()


def torch_sync(device):
    import torch

    def wait():
        if str(device).startswith("cuda"):
            torch.cuda.synchronize()
    return wait


class Meter:
    """Wall clock of a loop; waits for the device only before the first and after the last step."""

    def __init__(self, wait, budget_s=8.0):
        self.wait = wait
        self.budget_s = budget_s
        self.times = []
        self.total = 0.0

    def loop(self, n):
        self.wait()
        begin = last = time.perf_counter()
        for i in range(n):
            yield i
            now = time.perf_counter()
            self.times.append(now - last)
            last = now
            if now - begin > self.budget_s:
                break
        self.wait()
        self.total = time.perf_counter() - begin

    def report(self):
        ms = sorted(t * 1e3 for t in self.times)
        mean = self.total * 1e3 / len(ms)
        p90 = ms[min(len(ms) - 1, int(0.9 * len(ms)))]
        print(f"median_step_ms={statistics.median(ms):.3f} mean_step_ms={mean:.3f} p90={p90:.3f}", flush=True)
