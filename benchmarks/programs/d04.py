"""Scoring of large activation batches that arrive in host memory."""
import torch
import torch.nn as nn

from common import Work, main


class Tower(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(layers))
        self.score = nn.Linear(d, 8, bias=False)

    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if k % 2 == 0:
                x.relu_()
        return self.score(x)


class Feed:
    """Uploads batch i + 1 on its own stream while batch i is scored."""

    def __init__(self, host, device):
        self.host, self.device, self.k = host, device, 0
        self.cuda = device.type == "cuda"
        self.slots = [torch.empty_like(host[0], device=device) for _ in range(2)]
        if self.cuda:
            self.stream = torch.cuda.Stream(device)
            self.ready = [torch.cuda.Event() for _ in range(2)]
            self.free = [torch.cuda.Event() for _ in range(2)]
        self.send(0)

    def send(self, k):
        slot = k % 2
        if not self.cuda:
            self.slots[slot].copy_(self.host[k % len(self.host)])
            return
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.free[slot])
            self.slots[slot].copy_(self.host[k % len(self.host)], non_blocking=True)
            self.ready[slot].record(self.stream)

    def next(self):
        k, self.k = self.k, self.k + 1
        if self.cuda:
            if k:
                self.free[(k - 1) % 2].record()
            torch.cuda.current_stream().wait_event(self.ready[k % 2])
        self.send(k + 1)
        return self.slots[k % 2]


def build(ctx):
    torch.set_grad_enabled(False)
    rows, d, layers = ctx.pick((8192, 16384, 6), (16, 32, 2))
    with torch.device(ctx.device):
        torch.set_default_dtype(ctx.half)
        net = Tower(d, layers).eval()
        torch.set_default_dtype(torch.float32)
    piece = torch.randn(rows // 16, d).to(ctx.half)
    host = [torch.empty(rows, d, dtype=ctx.half, pin_memory=ctx.cuda) for _ in range(3)]
    for h in host:
        h.copy_(piece.repeat(16, 1))
    feed = Feed(host, ctx.device)
    results = torch.empty(4, rows, 8, dtype=ctx.half, pin_memory=ctx.cuda)
    fixed = feed.slots[0] if ctx.variant == "without" else None
    if fixed is not None:
        ctx.sync()

    def score(i):
        x = feed.next() if fixed is None else fixed
        results[i % 4].copy_(net(x), non_blocking=True)

    return Work(score, items=rows)


if __name__ == "__main__":
    main(build, steps=(100, 6), variants=("healthy", "without"))
