"""Turns one knob of a PyTorch program that does not know about it, for one experiment.

Knobs come as JSON in ``PINCHPOINT_KNOBS``. What was done, and how often, is written beside the
steps when the program ends: a knob that touched nothing must not be read as "no gain".
"""

from __future__ import annotations

import atexit
import functools
import gc
import inspect
import json
import os
import sys
import threading
from typing import Any, Callable

from . import FOLDER_VARIABLE, KNOBS_VARIABLE
from .after_import import after_import

_log: dict[str, int] = {}
_inside = threading.local()


def _note(what: str) -> None:
    _log[what] = _log.get(what, 0) + 1


# --- knobs of the loader -----------------------------------------------------------------------

_LOADER = ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers", "batch_size")


def _hook_loader(module: Any, knobs: dict[str, Any]) -> None:
    wanted = {name: knobs[name] for name in _LOADER if name in knobs}
    if not wanted:
        return
    kind = module.DataLoader
    original = kind.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def changed(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        for name, value in wanted.items():
            _set_loader(bound.arguments, name, value)
        original(*bound.args, **bound.kwargs)

    kind.__init__ = changed


def _set_loader(arguments: dict[str, Any], name: str, value: Any) -> None:
    """Set one argument where it makes sense for this loader."""
    workers = arguments.get("num_workers", 0)
    if name in ("prefetch_factor", "persistent_workers") and not workers:
        _note(f"{name}: left, the loader has no workers")
        return
    if name == "batch_size":
        if arguments.get("batch_sampler") is not None or arguments.get("batch_size", 1) is None:
            _note("batch_size: left, the loader has a batch sampler")
            return
        before = arguments.get("batch_size", 1)
        value = int(before * float(value[1:])) if str(value).startswith("x") else int(value)
    before = arguments.get(name)
    arguments[name] = value
    _note(f"{name}: {before} -> {value}")


# --- knobs of torch as a whole -----------------------------------------------------------------


def _hook_torch(torch: Any, knobs: dict[str, Any]) -> None:
    if "tf32" in knobs:
        torch.set_float32_matmul_precision("high" if knobs["tf32"] else "highest")
        torch.backends.cudnn.allow_tf32 = bool(knobs["tf32"])
        _note("tf32: set")
    if "cudnn_benchmark" in knobs:
        torch.backends.cudnn.benchmark = bool(knobs["cudnn_benchmark"])
        _note("cudnn_benchmark: set")
    if "omp_threads" in knobs:
        _hold_threads(torch, int(knobs["omp_threads"]))
    if "fused_optimizer" in knobs:
        for name in dir(torch.optim):
            _fuse(getattr(torch.optim, name))
    if {"autocast", "channels_last", "compile", "float32"} & set(knobs):
        _hook_modules(torch, knobs)


def _hold_threads(torch: Any, threads: int) -> None:
    """A program that sets its threads itself gets these: it would undo the variable."""
    original = torch.set_num_threads

    @functools.wraps(original)
    def held(asked: int) -> None:
        _note(f"omp_threads: set_num_threads({asked}) -> {threads}")
        original(threads)

    torch.set_num_threads = held


def _fuse(kind: Any) -> None:
    """Give an optimizer class ``fused=True``; if it refuses, it is made as it was asked for."""
    if not isinstance(kind, type) or "fused" not in inspect.signature(kind).parameters:
        return
    original: Any = getattr(kind, "__init__")

    @functools.wraps(original)
    def fused(self: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        params = list(params)
        asked = dict(kwargs)
        try:
            original(self, params, *args, **dict(kwargs, fused=True, foreach=None))
            _note(f"fused_optimizer: {kind.__name__}")
        except (RuntimeError, TypeError) as error:
            _note(f"fused_optimizer: left, {error}"[:120])
            original(self, params, *args, **asked)

    setattr(kind, "__init__", fused)


# --- knobs of the outermost module -------------------------------------------------------------


def _hook_modules(torch: Any, knobs: dict[str, Any]) -> None:
    """Wrap the call of modules that nothing else called and that have parameters: the model."""
    kind = torch.nn.Module
    original = kind.__call__

    @functools.wraps(original)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_inside, "on", False) or next(self.parameters(), None) is None:
            return original(self, *args, **kwargs)
        _inside.on = True
        try:
            return _call_model(torch, knobs, original, self, args, kwargs)
        finally:
            _inside.on = False

    kind.__call__ = called


def _call_model(
    torch: Any,
    knobs: dict[str, Any],
    original: Callable[..., Any],
    model: Any,
    args: Any,
    kwargs: Any,
) -> Any:
    device = next(model.parameters()).device.type
    if "float32" in knobs:
        if any(p.dtype is torch.float64 for p in model.parameters()):
            model.float()
            _note("float32: model")
        args = tuple(_single(torch, a) for a in args)
        kwargs = {name: _single(torch, value) for name, value in kwargs.items()}
    if "channels_last" in knobs:
        layout = torch.channels_last
        if not getattr(model, "_pinchpoint_layout", False):
            model.to(memory_format=layout)
            model._pinchpoint_layout = True
            _note("channels_last: model")
        args = tuple(
            a.contiguous(memory_format=layout) if torch.is_tensor(a) and a.dim() == 4 else a
            for a in args
        )
    if "compile" in knobs and getattr(model, "_compiled_call_impl", None) is None:
        model.compile(mode=None if knobs["compile"] == "default" else knobs["compile"])
        _note("compile: model")
    if "autocast" not in knobs:
        return original(model, *args, **kwargs)
    _note("autocast: calls")
    with torch.autocast(device, dtype=getattr(torch, knobs["autocast"])):
        return original(model, *args, **kwargs)


def _single(torch: Any, value: Any) -> Any:
    """A float64 tensor in 32 bits; anything else as it is."""
    double = torch.is_tensor(value) and value.dtype is torch.float64
    return value.float() if double else value


# --- start -------------------------------------------------------------------------------------


def start() -> None:
    """Begin, if there are knobs."""
    text = os.environ.get(KNOBS_VARIABLE)
    if not text:
        return
    knobs = json.loads(text)
    if knobs.get("gc") == "off":
        gc.disable()
        _note("gc: off")
    after_import("torch", lambda module: _hook_torch(module, knobs), _note_failure)
    loader = "torch.utils.data.dataloader"
    after_import(loader, lambda module: _hook_loader(module, knobs), _note_failure)
    atexit.register(_write, os.environ.get(FOLDER_VARIABLE), os.getpid())


def _note_failure(module: str, error: Exception) -> None:
    _note(f"failed: {type(error).__name__}: {error}"[:200])


def _write(folder: str | None, pid: int) -> None:
    if not folder or os.getpid() != pid or not _log:
        return
    try:
        with open(os.path.join(folder, "knobs-%d.json" % pid), "w", encoding="utf-8") as file:
            json.dump(_log, file)
    except OSError as error:
        sys.stderr.write(f"pinchpoint: what the knobs did was not written ({error})\n")
