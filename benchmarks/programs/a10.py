"""Answers a fixed queue of sixteen requests with a very wide model, layer after layer.

TRUTH: healthy, bound by memory bandwidth. Each layer multiplies 16 rows by a 16384 x 16384 bf16 matrix (0.54 GB), so the step is
the time to read the weights; sixteen rows are all that there are. No waste in the host, no fix worth 15 % short of a smaller
model or lower weight precision.
"""
import torch
import torch.nn.functional as F

from common import Work, main


def build(ctx):
    dim, rows = ctx.pick(16384, 64), ctx.pick(16, 4)
    weights = [torch.randn(dim, dim, device=ctx.device, dtype=ctx.half).mul_(dim**-0.5) for _ in range(ctx.pick(18, 3))]
    queue = torch.randn(4, rows, dim, device=ctx.device, dtype=ctx.half)

    @torch.inference_mode()
    def serve(i):
        x = queue[i % 4]
        for _ in range(2):
            for w in weights:
                x = F.linear(x, w)
        return x.argmax(-1)

    return Work(serve, items=rows)


if __name__ == "__main__":
    main(build, variants=("healthy",), steps=(120, 6), warmup=5)
