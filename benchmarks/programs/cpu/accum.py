"""Masked autoencoder on tabular patches, with gradient accumulation. Reads everything from memory."""
import csv
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self, dim=256, layers=3):
        super().__init__()
        self.embed = nn.Linear(64, dim)
        layer = nn.TransformerEncoderLayer(dim, 8, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.decode = nn.Linear(dim, 64)

    def forward(self, x, mask):
        x = self.embed(x.masked_fill(mask.unsqueeze(-1), 0.0))
        return self.decode(self.layers(x))


def global_norm(params):
    return sum(p.grad.norm().item() ** 2 for p in params if p.grad is not None) ** 0.5


def main(updates=30, accumulate=4):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(4096, 64, 64))
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=0)
    model = Encoder()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    log = csv.writer(open("/tmp/blindcpu_log.csv", "w"))
    times, history = [], []
    batches = iter(loader)
    t0 = last = time.perf_counter()
    for update in range(updates):
        opt.zero_grad(set_to_none=False)
        for _ in range(accumulate):
            (x,) = next(batches)
            mask = torch.rand(x.shape[:2]) < 0.5
            loss = F.mse_loss(model(x, mask)[mask], x[mask])
            (loss / accumulate).backward()
            history.append(loss.item())
        norm = global_norm(list(model.parameters()))
        opt.step()
        log.writerow([update, history[-1], norm])
        now = time.perf_counter()
        times.append(now - last)
        last = now
        print(f"update {update} loss {history[-1]:.4f} |g| {norm:.3f}", flush=True)
    print(f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s")


if __name__ == "__main__":
    main()
