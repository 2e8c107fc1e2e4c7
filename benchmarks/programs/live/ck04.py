"""Detection-like training: images of boxes come from loader workers, a small head learns to score the boxes."""
import argparse, json, statistics, time
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=2500)
    p.add_argument("--max-seconds", type=float, default=28)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    return p.parse_args()


class Scenes(Dataset):
    def __init__(self, n=400_000, classes=20, dim=24):
        rng = np.random.default_rng(0)
        self.n, self.classes, self.dim = n, classes, dim
        self.proto = rng.standard_normal((classes, dim)).astype(np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        k = int(rng.integers(2, 12))
        cls = rng.integers(0, self.classes, k)
        feat = self.proto[cls] + rng.standard_normal((k, self.dim), dtype=np.float32)
        xy = rng.random((k, 2), dtype=np.float32)
        wh = rng.random((k, 2), dtype=np.float32) * 0.3
        return {"feat": feat, "boxes": np.concatenate([xy, xy + wh], 1), "labels": cls.astype(np.int64),
                "area": wh.prod(1)}


FIELDS = ("feat", "boxes", "labels", "area")


def collate_lists(samples):
    out = {f: [torch.from_numpy(s[f]) for s in samples] for f in FIELDS}
    out["count"] = torch.tensor([len(s["labels"]) for s in samples])
    return out


def collate_flat(samples):
    out = {f: torch.from_numpy(np.concatenate([s[f] for s in samples])) for f in FIELDS}
    out["count"] = torch.tensor([len(s["labels"]) for s in samples])
    return out


def flatten(batch):
    return {f: (torch.cat(batch[f]) if isinstance(batch[f], list) else batch[f]) for f in FIELDS} | {
        "count": batch["count"]}


class Scorer(nn.Module):
    def __init__(self, dim=24, classes=20, width=192):
        super().__init__()
        self.inp = nn.Linear(dim + 4, width)
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.cls = nn.Linear(2 * width, classes)
        self.area = nn.Linear(width, 1)

    def forward(self, b):
        h = F.gelu(self.inp(torch.cat([b["feat"], b["boxes"]], 1)))
        h = h + self.body(h)
        scene = torch.repeat_interleave(torch.arange(len(b["count"])), b["count"])
        ctx = torch.zeros(len(b["count"]), h.shape[1]).index_add(0, scene, h) / b["count"].unsqueeze(1)
        return self.cls(torch.cat([h, ctx.index_select(0, scene)], 1)), self.area(h).squeeze(1)


def criterion(out, b):
    logits, area = out
    return F.cross_entropy(logits, b["labels"]) + 5 * F.smooth_l1_loss(area, b["area"])


def main():
    args = parse()
    torch.manual_seed(0)
    loader = DataLoader(Scenes(), args.batch, shuffle=True, num_workers=args.workers, persistent_workers=True,
                        prefetch_factor=4, drop_last=True,
                        collate_fn=collate_flat if args.variant == "fixed" else collate_lists)
    net = Scorer()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    ms, begin = [], time.perf_counter()
    last = begin
    for step, batch in enumerate(loader):
        b = flatten(batch)
        loss = criterion(net(b), b)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        now = time.perf_counter()
        ms.append((now - last) * 1e3)
        last = now
        if step % 100 == 99:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        if step + 1 >= args.steps or now - begin > args.max_seconds:
            break
    body = ms[5:] or ms
    print(json.dumps({"case": "ck04", "variant": args.variant, "steps": len(ms), "mean_ms": round(statistics.fmean(body), 3),
                      "median_ms": round(statistics.median(body), 3), "cpu_s": round(time.process_time(), 2)}))


if __name__ == "__main__":
    main()
