"""Serves an image classifier over batches that are already on the device.

TRUTH: a disabled log call formats a device tensor anyway: `log.debug(f"... {x}")` in Served.forward (and for the logits in
`answer`) builds repr(tensor) eagerly; Tensor.__repr__/_tensor_str cuts the 4-d tensor into a summary with hundreds of small
cat/select kernels and copies every row with tolist() (hundreds of synchronising device-to-host copies a step), although the
level DEBUG is off. Fix: lazy arguments, `log.debug("... %s", x)`, or remove the call.
"""
import logging

import torch

from common import Work, main
from nets import ResNet

log = logging.getLogger("served")
log.setLevel(logging.INFO)


class Served(ResNet):
    eager = False

    def forward(self, x):
        x = self.stages(self.stem(x))
        if self.eager:
            log.debug(f"stages gave {x}")
        else:
            log.debug("stages gave %s", x)
        return self.fc(x.mean((2, 3)))


def build(ctx):
    side, n = ctx.pick(224, 32), ctx.pick(64, 2)
    net = Served(ctx.pick((3, 4, 6, 3), (1, 1)), ctx.pick(64, 8)).to(ctx.device, ctx.half).to(memory_format=torch.channels_last).eval()
    net.eager = ctx.slow
    pool = [torch.randn(n, 3, side, side, device=ctx.device, dtype=ctx.half).contiguous(memory_format=torch.channels_last) for _ in range(4)]

    @torch.inference_mode()
    def answer(i):
        y = net(pool[i % 4])
        if ctx.slow:
            log.debug(f"request {i} logits {y}")
        else:
            log.debug("request %d logits %s", i, y)
        return y.argmax(-1)

    return Work(answer, items=n)


if __name__ == "__main__":
    main(build, steps=(80, 6), warmup=6)
