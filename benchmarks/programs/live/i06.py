"""Training a 3-D network on compressed CT patches kept in one archive file."""

import argparse
import io
import threading
import time
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--max-seconds", type=float, default=14)
args = parser.parse_args()

GPU = args.device == "cuda"
SHAPE, BATCH, WIDTH, READERS = ((64, 128, 128), 8, 32, 8) if GPU else ((8, 16, 16), 2, 4, 2)


def write_archive(count):
    """Concatenated zlib members and their (offset, size) table."""
    rng = np.random.default_rng(0)
    body, table = io.BytesIO(), []
    ramp = np.linspace(0, 900, SHAPE[2], dtype=np.float32)
    for _ in range(count):
        volume = ramp * rng.random((SHAPE[0], SHAPE[1], 1), dtype=np.float32)
        volume += rng.integers(0, 40, SHAPE)
        packed = zlib.compress(volume.astype(np.int16).tobytes(), 1)
        table.append((body.tell(), len(packed)))
        body.write(packed)
    return body, table


class Archive:
    def __init__(self, body, table):
        self.body, self.table = body, table
        self.lock = threading.Lock()

    def patch(self, index):
        offset, size = self.table[index]
        with self.lock:
            self.body.seek(offset)
            raw = zlib.decompress(self.body.read(size))
            return np.frombuffer(raw, np.int16).reshape(SHAPE)

    def __len__(self):
        return len(self.table)


class MemberArchive(Archive):
    def patch(self, index):
        offset, size = self.table[index]
        with self.lock:
            self.body.seek(offset)
            member = self.body.read(size)
        return np.frombuffer(zlib.decompress(member), np.int16).reshape(SHAPE)


class Loader:
    """Keeps several batches of patches in flight on a pool of reader threads."""

    def __init__(self, archive, depth=3):
        self.archive, self.depth = archive, depth
        self.pool = ThreadPoolExecutor(READERS)
        self.rng = np.random.default_rng(7)

    def order(self):
        picks = self.rng.integers(0, len(self.archive), BATCH)
        return [self.pool.submit(self.archive.patch, int(i)) for i in picks]

    def __iter__(self):
        waiting = deque(self.order() for _ in range(self.depth))
        while True:
            patches = [f.result() for f in waiting.popleft()]
            waiting.append(self.order())
            yield torch.from_numpy(np.stack(patches))

    def close(self):
        self.pool.shutdown(cancel_futures=True)


class PatchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv3d(1, WIDTH, 4, stride=4)
        self.convs = nn.ModuleList([nn.Conv3d(WIDTH, WIDTH, 3, padding=1) for _ in range(4)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = self.stem(x)
        for conv in self.convs:
            x = x + F.relu(conv(x))
        return self.head(x.mean((2, 3, 4))).squeeze(1)


def main():
    torch.manual_seed(1)
    kind = Archive if args.variant == "slow" else MemberArchive
    loader = Loader(kind(*write_archive(40 if GPU else 6)))
    model = PatchNet().to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step, patches in enumerate(loader, 1):
        x = patches.to(args.device).float().unsqueeze(1) / 500 - 0.5
        target = x.mean((1, 2, 3, 4))
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=GPU):
            out = model(x)
        loss = F.mse_loss(out.float(), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if step >= args.steps or time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    loader.close()
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.6f}")


if __name__ == "__main__":
    main()
