"""Plans with a large model in a control loop; each plan's first action goes to the controller on the host.

TRUTH: healthy. Each step ends with a synchronising `.tolist()` of eight numbers that the host needs; against 15-20 ms of large
bf16 GEMMs the gap is tens of microseconds (variant "without" leaves the numbers on the device; the time hardly changes).
"""
import torch
import torch.nn.functional as F

from common import Work, main


def build(ctx):
    dim, n = ctx.pick(8192, 32), ctx.pick(8192, 8)
    weights = [torch.randn(dim, dim, device=ctx.device, dtype=ctx.half).mul_((2 / dim) ** 0.5) for _ in range(12)]
    pool = torch.randn(2, n, dim, device=ctx.device, dtype=ctx.half)
    sent = []

    @torch.inference_mode()
    def plan(i):
        x = pool[i % 2]
        for w in weights:
            x = F.relu(F.linear(x, w), inplace=True)
        first = x[0, :8].float()
        if ctx.variant == "healthy":
            sent.append(sum(first.tolist()))
            del sent[:-16]
        return first

    return Work(plan, items=n)


if __name__ == "__main__":
    main(build, variants=("healthy", "without"), steps=(60, 6), warmup=5)
