"""Free-running echo-state network: many reservoirs are driven by sensor streams and read out."""

import argparse
import threading
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
UNITS, STREAMS, ROUNDS, SENSORS = (16384, 4096, 12, 16) if GPU else (64, 8, 3, 4)
WARM = 4
DTYPE = torch.bfloat16


class Reservoir:
    """A fixed random recurrent matrix; `advance` moves all streams by a few rounds."""

    def __init__(self):
        self.inner = torch.empty(UNITS, UNITS, device=args.device, dtype=DTYPE).normal_(0, 0.9 * UNITS**-0.5)
        self.drive = torch.empty(SENSORS, UNITS, device=args.device, dtype=DTYPE).normal_(0, 0.3)
        self.offset = torch.empty(UNITS, device=args.device, dtype=DTYPE).normal_(0, 0.1)
        self.state = torch.zeros(STREAMS, UNITS, device=args.device, dtype=DTYPE)
        self.seen = torch.zeros(STREAMS, SENSORS, device=args.device, dtype=DTYPE)

    def advance(self):
        state = self.state
        state[:, :SENSORS] += self.seen
        for _ in range(ROUNDS):
            state = torch.addmm(self.offset, state, self.inner).tanh_()
        self.state.copy_(state)


class Recorded(Reservoir):
    """The same rounds held in one recorded graph."""

    def __init__(self):
        super().__init__()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            super().advance()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().advance()

    def advance(self):
        self.graph.replay()


class Watch:
    """Keeps statistics of every step for a display thread."""

    def __init__(self):
        self.guard, self.rows, self.closing = threading.Lock(), [], threading.Event()
        self.shown = threading.Thread(target=self.show, daemon=True)
        self.shown.start()

    def add(self, index, energy, spread):
        with self.guard:
            self.rows.append({"step": index, "energy": energy, "spread": spread})

    def show(self):
        while not self.closing.wait(0.5):
            with self.guard:
                rows = list(self.rows)
            if rows:
                mean = sum(row["energy"] for row in rows) / len(rows)
                print(f"{len(rows)} steps, mean energy {mean:.4f}", flush=True)

    def close(self):
        self.closing.set()
        self.shown.join()


def readings(mixer):
    values = torch.randn(STREAMS, SENSORS, generator=mixer)
    return torch.stack([row / row.norm() for row in values[:64]]).repeat(STREAMS // 64 or 1, 1)[:STREAMS]


@torch.no_grad()
def step(index, reservoir, mixer, watch):
    rows = readings(mixer)
    reservoir.seen[: len(rows)].copy_(rows.to(args.device, DTYPE))
    reservoir.advance()
    sample = reservoir.state[:64].float()
    watch.add(index, sample.square().mean().item(), sample.std().item())
    if GPU and index % 25 == 0:
        torch.cuda.empty_cache()


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    reservoir = Recorded() if GPU else Reservoir()
    mixer, watch = torch.Generator().manual_seed(2), Watch()
    start = begin = time.perf_counter()
    for index in range(1, args.steps + 1):
        step(index, reservoir, mixer, watch)
        if index == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    watch.close()
    print(f"steps={index} mean_ms={1e3 * took / max(1, index - WARM):.3f}")


main()
