"""Node classification on a large graph with sampled neighbourhoods."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Sage(nn.Module):
    def __init__(self, d, hidden, classes, fan):
        super().__init__()
        self.fan = fan
        self.inner, self.outer = nn.Linear(2 * d, hidden), nn.Linear(2 * hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def join(self, own, near, fan):
        return torch.cat([own, near.view(len(own), fan, -1).mean(1)], -1)

    def forward(self, x, seeds):
        n, (f1, f2) = seeds, self.fan
        own, one, two = x.split([n, n * f1, n * f1 * f2])
        far = torch.relu(self.inner(self.join(one, two, f2)))
        near = torch.relu(self.inner(self.join(own, one, f1)))
        return self.head(torch.relu(self.outer(self.join(near, far, f1))))


class HostFeatures:
    """Rows of the node table, gathered into pinned memory and sent ahead of use."""

    def __init__(self, table, rows, device):
        self.table, self.device, self.k = table, device, 0
        cuda = device.type == "cuda"
        self.slots = [torch.empty(rows, table.shape[1], dtype=table.dtype, pin_memory=cuda) for _ in range(2)]
        self.sent = [torch.cuda.Event() if cuda else None for _ in range(2)]

    def fetch(self, ids):
        self.k ^= 1
        slot, sent = self.slots[self.k], self.sent[self.k]
        if sent is not None:
            sent.synchronize()
        torch.index_select(self.table, 0, ids, out=slot)
        x = slot.to(self.device, non_blocking=True)
        if sent is not None:
            sent.record()
        return x


class DeviceFeatures:
    def __init__(self, table, rows, device):
        self.table, self.device = table.to(device), device

    def fetch(self, ids):
        return self.table.index_select(0, ids.to(self.device, non_blocking=True))


def build(ctx):
    nodes, d, hidden, seeds, fan = ctx.pick((1 << 21, 256, 8192, 2048, (10, 10)), (512, 16, 32, 8, (3, 3)))
    rows = seeds * (1 + fan[0] + fan[0] * fan[1])
    with torch.device(ctx.device):
        net = Sage(d, hidden, 64, fan)
        labels = torch.randint(0, 64, (nodes,))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    base = torch.randn(nodes // 32, d)
    table = base.repeat(32, 1)
    features = (HostFeatures if ctx.slow else DeviceFeatures)(table, rows, ctx.device)
    queue = [torch.randint(0, nodes, (rows,)) for _ in range(16)]  # what the neighbour sampler hands over
    if ctx.cuda:
        queue = [q.pin_memory() for q in queue]

    def train_step(i):
        ids = queue[i % len(queue)]
        x = features.fetch(ids)
        y = labels[ids[:seeds].to(ctx.device, non_blocking=True)]
        with torch.autocast(ctx.device.type, dtype=torch.bfloat16, enabled=ctx.cuda):
            loss = F.cross_entropy(net(x, seeds), y)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(train_step, items=seeds)


if __name__ == "__main__":
    main(build, steps=(200, 6))
