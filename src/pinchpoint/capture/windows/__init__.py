"""What every kind of recording window can do, and which kind a program needs."""

import sys
from pathlib import Path
from typing import Protocol

from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows.all_threads import GlobalWindow
from pinchpoint.capture.windows.nsys import NsysWindow
from pinchpoint.capture.windows.recording import JaxWindow, Recording, XlaWindow
from pinchpoint.capture.windows.torch import TorchWindow


class Window(Protocol):
    """A bounded recording, used from one thread."""

    steps: int  # whole ones so far; -1 before the recording itself has begun

    def prime(self) -> None:
        """Pay first-use costs now."""
        ...

    def open(self) -> None:
        """Begin to warm up."""
        ...

    def step(self) -> None:
        """A step ends; the first call begins the recording itself."""
        ...

    def may_end(self, *, step_ended: bool) -> bool:
        """Whether the program can bear its end now; if not, nothing more is recorded until then."""
        ...

    def close(self, *, step_ended: bool = False) -> Recording:
        """End, write, and say what became of it; ``step_ended``: at the end of a whole step."""
        ...


def new_window(
    settings: Settings, folder: Path, stem: str, *, all_threads: bool = False
) -> Window | None:
    """The window that fits what the program has imported; None if it has nothing to record.

    ``all_threads``: it will be opened from a thread of our own, at any moment.
    """
    if settings.tool == "nsys":
        return NsysWindow()
    if settings.tool == "none":
        return None
    if "torch_xla" in sys.modules:
        return XlaWindow(folder, stem)
    if jax_works() and not _torch_works():
        return JaxWindow(folder, stem)
    if "torch" not in sys.modules:
        return None
    kind = GlobalWindow if all_threads else TorchWindow
    return kind(settings, folder, stem)


def _torch_works() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def jax_works() -> bool:
    """Whether JAX has come to its device."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    initialized = getattr(bridge, "backends_are_initialized", None)
    return bool(initialized and initialized())
