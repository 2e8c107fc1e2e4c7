"""Shuffle stage of a join: order records by a 63-bit key, move their rows, cut them into partitions."""
import torch

from common import Work, main


class Shuffle:
    def __init__(self, rows, width, parts, device):
        self.rows = torch.empty(rows, width, device=device)
        self.keys = torch.empty(rows, dtype=torch.int64, device=device)
        self.order = torch.empty(rows, dtype=torch.int64, device=device)
        edge = 2**63 // parts
        self.edges = torch.tensor([edge * k for k in range(1, parts)], device=device)

    def __call__(self, keys, rows):
        torch.sort(keys, out=(self.keys, self.order))
        torch.index_select(rows, 0, self.order, out=self.rows)
        return torch.searchsorted(self.keys, self.edges)


def build(ctx):
    torch.set_grad_enabled(False)
    n, width, parts = ctx.pick((1 << 26, 8, 4096), (4096, 8, 16))
    with torch.device(ctx.device):
        keys = [torch.randint(0, 2**63 - 1, (n,)) for _ in range(4)]
        rows = torch.randn(n, width)
        cuts = torch.empty(64, parts - 1, dtype=torch.int64)
    shuffle = Shuffle(n, width, parts, ctx.device)

    def stage(i):
        cuts[i % 64] = shuffle(keys[i % 4], rows)

    return Work(stage, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6), variants=("healthy",))
