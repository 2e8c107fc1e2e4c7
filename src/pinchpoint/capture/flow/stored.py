"""Where autograd stores gradients of parameters, and which optimizers are about to take them."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

_NODE = "torch::autograd::AccumulateGrad"
# What that node runs: it keeps a gradient, copies it, or adds it to what is there.
_STORES = frozenset(f"aten::{name}" for name in ("detach", "clone", "copy_", "add_", "add"))


def parameter_of(torch: Any, name: str) -> Any:
    """The parameter whose gradient the operator of this name is about to store, or None.

    None, too, before torch 2.1, which does not tell the node that runs.
    """
    node = getattr(torch._C, "_current_autograd_node", None) if name in _STORES else None
    running = node() if node is not None else None
    return running.variable if running is not None and running.name() == _NODE else None


def before_optimizers(heard: Callable[[list[Any]], None]) -> Iterator[Callable[[], None]]:
    """``heard`` is told the gradients that each optimizer has as it begins its step, of the
    program's own kind too; what ends that is given back."""
    optimizers: Any = sys.modules.get("torch.optim.optimizer")
    register = getattr(optimizers, "register_optimizer_step_pre_hook", None)
    if register is None:
        return

    def begins(optimizer: Any, args: Any, kwargs: Any) -> None:
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        heard([one.grad for one in parameters if one.grad is not None])

    yield register(begins).remove
