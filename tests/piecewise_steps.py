"""Steps with a Python loop that goes through a tensor row by row."""

from pinchpoint.trace import HostKind
from program import Program

ROWS, ROW = [64, 256], [256]
KERNEL = "void at::native::vectorized_elementwise_kernel<4, Functor<float> >(int)"
STEPS = 5


def looping(turns=20, *, carried=False, views=True, layers=False):
    """``for i in range(turns): out[i] = f(x[i])``; ``carried``: of ``h`` and ``x[i]``."""
    p = Program()
    for _ in p.steps(STEPS):
        with p.row("aten::mm"):
            p.kernel("gemm", 20)
        with p.frame("model.py(9): returns"):
            for turn in range(turns):
                if views:
                    values = ["", "0", str(turn)]
                    p.host("aten::select", 4, kind=HostKind.OPERATOR, shapes=[ROWS], values=values)
                module = f"nn.Module: Linear_{turn}" if layers else "torch/functional.py(1): f"
                with p.row(module, kind=HostKind.MODULE if layers else HostKind.PYTHON):
                    for name, given in (
                        ("aten::mul", [ROW, ROW] if carried else [ROW, []]),
                        ("aten::exp", [ROW]),
                    ):
                        texts = {"values": [""] * len(given), "dtypes": ["float"] * len(given)}
                        with p.row(name, shapes=given, **texts):
                            p.busy(15)
                            p.kernel(KERNEL, 2)
        p.sync()
    return p.trace()
