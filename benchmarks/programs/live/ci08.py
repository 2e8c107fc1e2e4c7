"""Diffractive optical network: phase masks optimised through wave propagation, examples split over two ranks."""
import argparse, json, math, os, statistics, tempfile, time
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

GRID, MASKS, CLASSES, BATCH = 192, 3, 10, 12


def transfer(distance, pitch=8e-6, wavelength=532e-9):
    f = torch.fft.fftfreq(GRID, pitch, dtype=torch.float64)
    kz = torch.sqrt((1 / wavelength ** 2 - f[:, None] ** 2 - f[None, :] ** 2).clamp(min=0))
    return torch.polar(torch.ones_like(kz), (2 * math.pi * distance * kz) % (2 * math.pi)).to(torch.complex64)


class Optics(nn.Module):
    def __init__(self):
        super().__init__()
        self.masks = nn.ParameterList(nn.Parameter(torch.zeros(GRID, GRID)) for _ in range(MASKS))
        self.register_buffer("h", transfer(0.03))
        spots = torch.zeros(CLASSES, GRID, GRID)
        for c in range(CLASSES):
            r, q = 40 + 56 * (c // 4), 30 + 40 * (c % 4)
            spots[c, r:r + 14, q:q + 14] = 1
        self.register_buffer("spots", spots.flatten(1).t().contiguous())

    def travel(self, field):
        return torch.fft.ifft2(torch.fft.fft2(field) * self.h)

    def forward(self, amplitude):
        field = self.travel(amplitude.to(torch.complex64))
        for mask in self.masks:
            field = self.travel(field * torch.polar(torch.ones_like(mask), mask))
        light = (field.real.square() + field.imag.square()).flatten(1) @ self.spots
        return 10 * light / light.sum(1, keepdim=True)


def exchange(params, world):
    flat = torch.cat([w.grad.flatten() for w in params])
    dist.all_reduce(flat)
    flat /= world
    for w, g in zip(params, flat.split([w.numel() for w in params])):
        w.grad.copy_(g.view_as(w))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="healthy", choices=["healthy"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Optics()
    params = list(model.parameters())
    opt = torch.optim.Adam(params, lr=0.05)
    g = torch.Generator().manual_seed(5 + rank)
    shapes = F.interpolate(torch.rand(240, 1, 12, 12, generator=g), GRID, mode="nearest")[:, 0]
    labels = torch.randint(0, CLASSES, (240,), generator=g)
    times, start, stop, shown = [], time.perf_counter(), torch.zeros(1), torch.zeros(1)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(a.steps):
            t = time.perf_counter()
            rows = torch.randint(0, len(shapes), (BATCH,), generator=g)
            loss = F.cross_entropy(model(shapes[rows]), labels[rows])
            opt.zero_grad()
            loss.backward()
            exchange(params, world)
            opt.step()
            shown[0] = loss.item()
            dist.all_reduce(shown)
            if not math.isfinite(shown.item()):
                raise RuntimeError("diverged")
            if rank == 0 and step % 100 == 99:
                torch.save(model.state_dict(), os.path.join(folder, "last.pt"))
            dist.barrier()
            times.append((time.perf_counter() - t) * 1e3)
            if step % 20 == 19:
                stop.fill_(time.perf_counter() - start > a.max_seconds)
                dist.all_reduce(stop, op=dist.ReduceOp.MAX)
                if stop.item():
                    break
    kept = times[3:] or times
    if rank == 0:
        print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "loss": shown.item() / world}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
