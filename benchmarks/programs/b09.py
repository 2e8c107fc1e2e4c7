"""Runs a deep chain of small layers, captured once and replayed for each request.

TRUTH: healthy. Hundreds of small kernels a step, but all inside one CUDA graph (one launch), each a matrix product with its bias
and activation fused; every layer needs the one before it. No host gaps, nothing to fuse, no fix worth 15 %.
"""
import torch

from common import Work, main


def build(ctx):
    dim, n, depth = ctx.pick(2048, 32), ctx.pick(512, 8), ctx.pick(700, 10)
    held = ctx.pick(16, 2)
    weights = [torch.randn(dim, dim, device=ctx.device, dtype=ctx.half).mul_((2 / dim) ** 0.5) for _ in range(held)]
    biases = [torch.zeros(dim, device=ctx.device, dtype=ctx.half) for _ in range(held)]
    pool = torch.randn(4, n, dim, device=ctx.device, dtype=ctx.half)
    inp = pool[0].clone()

    def chain(x):
        for k in range(depth):
            x = torch._addmm_activation(biases[k % held], x, weights[k % held])
        return x

    graph, out = None, None
    if ctx.cuda:
        with torch.no_grad():
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                chain(inp)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = chain(inp)

    @torch.no_grad()
    def request(i):
        inp.copy_(pool[i % 4])
        if graph is None:
            return chain(inp)
        graph.replay()
        return out

    return Work(request, items=n)


if __name__ == "__main__":
    main(build, variants=("healthy",), steps=(100, 6), warmup=5)
