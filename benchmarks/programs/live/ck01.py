"""Train a click model on event streams: exponentially decayed traces per channel feed a small network."""
import argparse, json, statistics, time
import torch
from torch import nn
import torch.nn.functional as F


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--max-seconds", type=float, default=28)
    p.add_argument("--channels", type=int, default=512)
    p.add_argument("--batch", type=int, default=64)
    return p.parse_args()


class EventSource:
    """Streams of rare events: a tenth of the channels is alive in one session, the rest were alive earlier."""

    def __init__(self, channels, batch, window, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.channels, self.batch, self.window = channels, batch, window
        self.rate = torch.zeros(channels)
        live = torch.randperm(channels, generator=self.g)[: channels // 10]
        self.rate[live] = 0.2

    def next(self):
        u = torch.rand(self.window, self.batch, self.channels, generator=self.g)
        events = (u < self.rate).float()
        label = (events.sum((0, 2)) + torch.randn(self.batch, generator=self.g) > events.sum((0, 2)).median()).float()
        return events, label


class Traces(nn.Module):
    """A bank of decayed counters, carried over from window to window."""

    def __init__(self, channels, batch, taus, floor):
        super().__init__()
        self.register_buffer("decay", torch.exp(-1.0 / torch.tensor(taus)).view(-1, 1, 1))
        start = torch.rand(len(taus), batch, channels)
        self.register_buffer("state", start)
        self.floor = floor

    @torch.no_grad()
    def forward(self, events):
        out = []
        s = self.state
        for e in events:
            s = s * self.decay + e
            if self.floor:
                s = F.threshold(s, self.floor, 0.0)
            out.append(s)
        self.state = s
        return torch.stack(out[:: 4]).mean(0)


class Head(nn.Module):
    def __init__(self, channels, taus, width=256):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.mix = nn.Linear(channels, width)
        self.out = nn.Sequential(nn.Linear(width * taus, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, 1))

    def forward(self, traces):
        h = F.gelu(self.mix(self.norm(traces)))
        return self.out(h.permute(1, 0, 2).flatten(1)).squeeze(-1)


class Meter:
    def __init__(self):
        self.ms = []

    def add(self, seconds):
        self.ms.append(seconds * 1e3)

    def line(self, **more):
        body = self.ms[5:] or self.ms
        return json.dumps({**more, "steps": len(self.ms), "mean_ms": round(statistics.fmean(body), 3),
                           "median_ms": round(statistics.median(body), 3), "cpu_s": round(time.process_time(), 2)})


def warm_start(traces, minutes=3):
    """Bring the counters to where a session of some minutes leaves them: earlier activity has died away."""
    with torch.no_grad():
        for _ in range(minutes * 60):
            traces.state.mul_(traces.decay)
            if traces.floor:
                traces.state.copy_(F.threshold(traces.state, traces.floor, 0.0))


def train(args):
    torch.manual_seed(1)
    taus = [1.7, 1.9, 2.1, 2.3]
    source = EventSource(args.channels, args.batch, window=48)
    traces = Traces(args.channels, args.batch, taus, 1e-12 if args.variant == "fixed" else 0.0)
    head = Head(args.channels, len(taus))
    opt = torch.optim.AdamW(head.parameters(), lr=1e-3)
    warm_start(traces)
    meter, begin, loss_sum = Meter(), time.perf_counter(), 0.0
    for step in range(args.steps):
        t = time.perf_counter()
        events, label = source.next()
        x = traces(events)
        loss = F.binary_cross_entropy_with_logits(head(x), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        loss_sum += loss.detach()
        meter.add(time.perf_counter() - t)
        if step % 100 == 99:
            print(f"step {step + 1} loss {float(loss_sum) / (step + 1):.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    print(meter.line(case="ck01", variant=args.variant))


if __name__ == "__main__":
    train(parse())
