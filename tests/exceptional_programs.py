"""Programs in which some steps take far longer than the others, for a known reason."""

from loader_steps import RANGE
from pinchpoint.trace import ApiKind, HostKind, Trace
from program import Program

WORK_US, MORE_US = 10_000, 100_000
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def _train(p: Program) -> None:
    p.kernel("gemm", WORK_US / 2)
    with p.row(BACKWARD):
        p.kernel("gemm", WORK_US / 2)


def _frame(name: str):
    def more(p: Program) -> None:
        with p.frame("train.py(90): every_so_often"):
            p.host(name, MORE_US)

    return more


def _late_batch(p: Program) -> None:
    p.host(RANGE.format("MultiProcessing"), MORE_US, kind=HostKind.ANNOTATION)


def _synchronise(p: Program) -> None:
    with p.frame("train.py(90): every_so_often"):
        p.call("cudaFree", ApiKind.FREE, MORE_US)


def _evaluate(p: Program) -> None:
    with p.frame("train.py(90): every_so_often"):
        for _ in range(10):
            p.kernel("gemm", MORE_US / 10)
        p.sync()


def _slow_kernel(p: Program) -> None:
    p.kernel("gemm", MORE_US)


MORE = {
    "late batch": _late_batch,
    "checkpoint": _frame("torch/serialization.py(967): save"),
    "garbage": _frame("<built-in function collect>"),
    "compiler": _frame("torch/_dynamo/convert_frame.py(8): _compile"),
    "python": _frame("prepare.py(3): rebuild_index"),
    "allocator": _synchronise,
    "evaluation": _evaluate,
    "slow kernel": _slow_kernel,
}


def now_and_then(more: str, at: tuple[int, ...], *, steps: int = 11, workers: int = 0) -> Trace:
    """Steps of 10 ms of device work; those ``at`` these numbers take about 100 ms more."""
    p = Program()
    for number in p.steps(steps):
        if number not in at and more == "late batch":
            p.host(RANGE.format("MultiProcessing"), 100, kind=HostKind.ANNOTATION)
        if number in at:
            MORE[more](p)
        if number not in at or more != "slow kernel":
            _train(p)
        p.sync()
    for n in range(workers):
        thread = p.builder.thread(f"feeder {n}")
        p.builder.python("multiprocessing/queues.py(251): _feed", 0, p.at, thread=thread)
    return p.trace()


def two_kinds(*, steps: int = 9, optimizer_every: int = 3) -> Trace:
    """Micro-steps of 10 ms that accumulate, and every third one with an optimizer of 40 ms."""
    p = Program()
    for number in p.steps(steps):
        _train(p)
        if number % optimizer_every == 0:
            with p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION):
                p.kernel("adam", 4 * WORK_US)
        p.sync()
    return p.trace()
