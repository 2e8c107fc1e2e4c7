"""Parse service logs into per-endpoint latency statistics."""

import argparse
import random
import re
import time
from collections import defaultdict

FIELD = {
    "slow": r"(?:[\w.-]+\s?)+",
    "fixed": r"[\w.-]+(?:\s[\w.-]+)*",
}


def line_pattern(variant):
    return re.compile(
        r"^(?P<ts>\d+\.\d+) (?P<level>[A-Z]+) (?P<who>" + FIELD[variant] + r"): (?P<ms>\d+)ms$"
    )


class LogFaker:
    WORDS = ["get", "put", "user", "cart", "api", "v2", "job", "sync"]

    def __init__(self, seed):
        self.r = random.Random(seed)

    def line(self):
        r = self.r
        who = " ".join(r.choice(self.WORDS) for _ in range(3))
        head = f"{r.random() * 1e6:.3f} {r.choice(['INFO', 'WARN', 'ERROR'])} {who}"
        if r.random() < 0.1:
            return head + " (retry)"
        return head + f": {r.randint(1, 900)}ms"

    def batch(self, n):
        return [self.line() for _ in range(n)]


class Stats:
    def __init__(self):
        self.total = defaultdict(int)
        self.count = defaultdict(int)
        self.skipped = 0

    def add(self, match):
        if match is None:
            self.skipped += 1
            return
        self.total[match["who"]] += int(match["ms"])
        self.count[match["who"]] += 1

    def mean(self):
        n = sum(self.count.values())
        return sum(self.total.values()) / max(1, n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    pattern = line_pattern(args.variant)
    faker, stats = LogFaker(3), Stats()
    files = [faker.batch(3000) for _ in range(8)]
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        for text in files[step % len(files)]:
            stats.add(pattern.match(text))
        result = stats.mean()
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
        if len(cpu) % 20 == 0:
            print(len(cpu), f"{result:.6g}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    med = sorted(cpu)[len(cpu) // 2] * 1e3
    print(
        f"done steps={len(cpu)} median_cpu_ms={med:.2f} median_wall_ms={sorted(wall)[len(wall) // 2] * 1e3:.2f} result={result:.6g}"
    )


if __name__ == "__main__":
    main()
