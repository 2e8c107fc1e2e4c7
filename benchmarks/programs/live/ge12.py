"""Drift correction of microscope movies: every region of interest is registered to its reference by phase correlation."""
import argparse
import json
import statistics
import time

import numpy as np

PROGRAM = "ge12"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1200
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


class Backend:
    """CuPy on the device, NumPy otherwise."""

    def __init__(self, device, variant):
        if device == "cuda":
            import cupy
            self.xp = cupy
            if variant == "fixed":
                cupy.fft.config.get_plan_cache().set_size(128)
        else:
            self.xp = np
        self.gpu = device == "cuda"

    def synchronize(self):
        if self.gpu:
            self.xp.cuda.Device().synchronize()

    def host(self, array):
        return self.xp.asnumpy(array) if self.gpu else array


class Region:
    """A rectangle of the field of view with its window and reference spectrum."""

    def __init__(self, xp, top, left, height, width):
        self.rows = slice(top, top + height)
        self.columns = slice(left, left + width)
        self.shape = (height, width)
        taper = np.outer(np.hanning(height), np.hanning(width)).astype(np.float32)
        self.taper = xp.asarray(taper)
        self.reference = None

    def crop(self, frames):
        patch = frames[:, self.rows, self.columns]
        return (patch - patch.mean(axis=(1, 2), keepdims=True)) * self.taper


def lay_out_regions(xp, rng, cfg):
    """Regions follow the outlines of the cells that were found, so no two have the same size."""
    sides = [s for s in range(cfg["smallest"], cfg["largest"]) if smooth(s)]
    seen, regions = set(), []
    while len(regions) < cfg["regions"]:
        height, width = (int(s) for s in rng.choice(sides, 2))
        if (height, width) in seen:
            continue
        seen.add((height, width))
        top = int(rng.integers(0, cfg["frame"] - height))
        left = int(rng.integers(0, cfg["frame"] - width))
        regions.append(Region(xp, top, left, height, width))
    return regions


def smooth(n):
    for p in (2, 3, 5):
        while n % p == 0:
            n //= p
    return n == 1


class Camera:
    """Frames of a fixed scene that wanders by a few pixels."""

    def __init__(self, xp, cfg):
        self.xp, self.cfg = xp, cfg
        self.rng = np.random.default_rng(3)
        margin = cfg["frame"] + 2 * cfg["wander"]
        self.scene = xp.asarray(self.rng.random((margin, margin), dtype=np.float32))
        self.offset = np.array([cfg["wander"], cfg["wander"]])

    def view(self, offset):
        y, x = (int(o) for o in offset)
        return self.scene[y:y + self.cfg["frame"], x:x + self.cfg["frame"]]

    def chunk(self):
        views = []
        for _ in range(self.cfg["chunk"]):
            self.offset = np.clip(self.offset + self.rng.integers(-1, 2, 2), 0, 2 * self.cfg["wander"])
            views.append(self.view(self.offset))
        return self.xp.stack(views)


class Registration:
    def __init__(self, backend, cfg):
        self.backend, self.xp, self.cfg = backend, backend.xp, cfg
        self.regions = lay_out_regions(self.xp, np.random.default_rng(8), cfg)
        self.camera = Camera(self.xp, cfg)
        first = self.camera.view(self.camera.offset)[None]
        for region in self.regions:
            region.reference = self.xp.conj(self.xp.fft.rfft2(region.crop(first), axes=(1, 2)))
        self.path = []

    def peak(self, region, frames):
        xp = self.xp
        spectrum = xp.fft.rfft2(region.crop(frames), axes=(1, 2)) * region.reference
        spectrum /= xp.abs(spectrum) + 1e-6
        correlation = xp.fft.irfft2(spectrum, s=region.shape, axes=(1, 2))
        return correlation.reshape(len(frames), -1).argmax(axis=1)

    def shifts(self, peaks):
        """Peak positions as signed displacements; the median over regions is robust to moving cells."""
        result = np.empty((len(self.regions), self.cfg["chunk"], 2))
        for i, region in enumerate(self.regions):
            height, width = region.shape
            y, x = np.divmod(peaks[i], width)
            result[i, :, 0] = np.where(y > height // 2, y - height, y)
            result[i, :, 1] = np.where(x > width // 2, x - width, x)
        return np.median(result, axis=0)

    def step(self):
        frames = self.camera.chunk()
        peaks = self.xp.stack([self.peak(region, frames) for region in self.regions])
        self.path.append(self.shifts(self.backend.host(peaks)))
        del self.path[:-256]


def run_loop(args, backend, step):
    for _ in range(WARMUP):
        step()
    backend.synchronize()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    backend.synchronize()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)


def main():
    args = parse_args()
    backend = Backend(args.device, args.variant)
    if args.device == "cuda":
        cfg = dict(frame=1024, wander=8, chunk=8, regions=24, smallest=96, largest=260)
    else:
        cfg = dict(frame=128, wander=3, chunk=2, regions=4, smallest=16, largest=40)
    run_loop(args, backend, Registration(backend, cfg).step)


if __name__ == "__main__":
    main()
