"""Character-level sequence tagging with a transformer."""
import argparse
import copy
import gc
import json
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["healthy"], default="healthy")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()
torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self, dim=256, layers=3):
        super().__init__()
        self.emb = nn.Embedding(128, dim)
        self.pos = nn.Parameter(torch.zeros(1, 128, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 24)

    def forward(self, ids):
        return self.out(self.body(self.emb(ids) + self.pos))


data = TensorDataset(torch.randint(0, 128, (6400, 128)), torch.randint(0, 24, (6400, 128)))
loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=0)
model = Tagger()
opt = torch.optim.AdamW(model.parameters(), 3e-4, foreach=True)
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 100))
folder = tempfile.mkdtemp()
times, history, begin, step = [], [], time.perf_counter(), 0
done = False
while not done:
    for ids, tags in loader:
        if step >= args.steps or time.perf_counter() - begin > args.max_seconds:
            done = True
            break
        t0 = time.perf_counter()
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        opt.step()
        schedule.step()
        accuracy = (logits.argmax(-1) == tags).float().mean().item()
        history.append({"loss": loss.item(), "norm": norm, "accuracy": accuracy, "lr": schedule.get_last_lr()[0]})
        print(f"step {step} loss {loss.item():.4f} acc {accuracy:.3f} norm {norm:.2f}", flush=True)
        if step % 60 == 59:
            torch.save(copy.deepcopy(model.state_dict()), os.path.join(folder, "last.pt"))
            gc.collect()
        step += 1
        times.append((time.perf_counter() - t0) * 1e3)
t = sorted(times[3:])
print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
