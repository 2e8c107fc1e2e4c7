"""Sleep-stage model on pre-extracted spectrogram windows kept in one compressed archive per night."""
import argparse, json, os, statistics, tempfile, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NIGHTS, WINDOWS, BINS, FRAMES, STAGES = 16, 200, 32, 30, 5


def write_nights(folder):
    rng = np.random.default_rng(0)
    paths = []
    for night in range(NIGHTS):
        spec = np.round(rng.standard_normal((WINDOWS, BINS, FRAMES)) * 20).astype(np.float32)
        stage = rng.integers(0, STAGES, WINDOWS)
        paths.append(os.path.join(folder, f"night{night:03d}.npz"))
        np.savez_compressed(paths[-1], spec=spec, stage=stage)
    return paths


class Nights(Dataset):
    def __init__(self, paths, variant):
        self.paths, self.variant = paths, variant
        self.open = {}

    def __len__(self):
        return len(self.paths) * WINDOWS

    def night(self, number):
        if number not in self.open:
            archive = np.load(self.paths[number])
            if self.variant == "fixed":
                archive = {name: archive[name] for name in archive.files}
            self.open[number] = archive
        return self.open[number]

    def __getitem__(self, index):
        number, window = divmod(index, WINDOWS)
        night = self.night(number)
        spec = torch.from_numpy(night["spec"][window].copy())
        spec = (spec - spec.mean()) / (spec.std() + 1e-5)
        return spec, int(night["stage"][window])


class Net(nn.Module):
    def __init__(self, width=320):
        super().__init__()
        self.inp = nn.Linear(BINS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, STAGES)

    def forward(self, spec):
        x = self.inp(spec.transpose(1, 2))
        return self.out(self.body(x).mean(1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        data = Nights(write_nights(folder), a.variant)
        loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4, drop_last=True)
        model = Net()
        opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        times, running, start = [], 0.0, time.perf_counter()
        t, done = start, False
        while not done:
            for spec, stage in loader:
                loss = F.cross_entropy(model(spec), stage)
                opt.zero_grad()
                loss.backward()
                opt.step()
                running = 0.98 * running + 0.02 * loss.item()
                now = time.perf_counter()
                times.append((now - t) * 1e3)
                t = now
                if len(times) >= a.steps or now - start > a.max_seconds:
                    done = True
                    break
        del loader
    kept = times[5:] or times
    print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "loss": running}))


if __name__ == "__main__":
    main()
