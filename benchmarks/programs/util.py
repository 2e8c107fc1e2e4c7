"""Sizes: size a piece of host work or a model to the machine at hand."""

import time


def time_ms(ctx, fn, n=4):
    for _ in range(3):
        fn()
    best = float("inf")
    for _ in range(3):
        ctx.sync()
        t = time.perf_counter()
        for _ in range(n):
            fn()
        ctx.sync()
        best = min(best, (time.perf_counter() - t) / n * 1e3)
    return best


def fit_count(fn, ms, start=64):
    """The n for which fn(n) lasts about ms on this host."""
    n, best = start, float("inf")
    for _ in range(6):
        t = time.perf_counter()
        fn(n)
        best = min(best, (time.perf_counter() - t) * 1e3)
        if best < 0.2:
            n, best = n * 4, float("inf")
    return max(1, int(n * ms / best))
