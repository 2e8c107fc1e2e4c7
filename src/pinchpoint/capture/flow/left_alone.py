"""Functions of torch that do something else where a mode of the dispatcher is there, and fail.

With lengths on the CPU and scores on a device, ``ctc_loss`` takes an operator under any mode that
wants all of them on one device, and the program ends of it (torch 2.11).
"""

from collections.abc import Callable, Iterator
from typing import Any

_NAMES = ("ctc_loss",)


def leave_alone(
    torch: Any, mode: Any, reads: Callable[[Any], None]
) -> Iterator[Callable[[], None]]:
    """Let these run without ``mode``; ``reads`` is told of the tensors that they are given.

    What undoes each is given back.
    """
    for name in _NAMES:
        original = getattr(torch, name, None)
        if original is not None:
            alone = _alone(torch, original, mode, reads)
            setattr(torch, name, alone)
            yield _undone(torch, name, alone, original)


def _alone(torch: Any, original: Any, mode: Any, reads: Callable[[Any], None]) -> Any:
    c = torch._C

    def alone(*args: Any, **kwargs: Any) -> Any:
        top = c._len_torch_dispatch_stack() - 1
        if top < 0 or c._get_dispatch_stack_at(top) is not mode:
            return original(*args, **kwargs)
        for one in (*args, *kwargs.values()):
            if isinstance(one, torch.Tensor):
                reads(one)
        c._pop_torch_dispatch_stack(None)
        try:
            return original(*args, **kwargs)
        finally:
            c._push_on_torch_dispatch_stack(mode)

    return alone


def _undone(torch: Any, name: str, alone: Any, original: Any) -> Callable[[], None]:
    def undo() -> None:
        if getattr(torch, name) is alone:
            setattr(torch, name, original)

    return undo
