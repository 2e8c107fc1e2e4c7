"""Document encoder behind a queue; a thread hands in documents, one answer each."""
import argparse
import json
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["healthy"], default="healthy")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
DIM, HEADS, LAYERS = 384, 6, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20000, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.norm(x).mean(1), dim=-1)


def producer(box, stop):
    rng = np.random.default_rng(0)
    while not stop.is_set():
        doc = {"id": int(rng.integers(1 << 30)), "tokens": rng.integers(0, 20000, int(rng.integers(300, 360))).tolist()}
        while not stop.is_set():
            try:
                box.put(json.dumps(doc), timeout=0.2)
                break
            except queue.Full:
                pass


box, stop = queue.Queue(8), threading.Event()
feeder = threading.Thread(target=producer, args=(box, stop), daemon=True)
feeder.start()
model = Encoder().eval()
index = torch.randn(4096, DIM)
times, answers, begin = [], [], time.perf_counter()
while len(times) < args.steps and time.perf_counter() - begin < args.max_seconds:
    t0 = time.perf_counter()
    doc = json.loads(box.get())
    ids = torch.from_numpy(np.asarray(doc["tokens"], dtype=np.int64)).unsqueeze(0)
    with torch.inference_mode():
        vector = model(ids)
        score, near = (vector @ index.T).topk(5)
    answers.append(json.dumps({"id": doc["id"], "near": near[0].tolist(), "score": score[0].tolist(),
                               "vector": [round(v, 5) for v in vector[0].cpu().numpy().tolist()]}))
    times.append((time.perf_counter() - t0) * 1e3)
stop.set()
feeder.join()
t = sorted(times[3:])
print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
