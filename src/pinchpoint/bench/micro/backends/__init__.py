"""Where the work of a function runs, and how it is timed there."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pinchpoint.bench.micro.backends.base import Backend
from pinchpoint.errors import MissingExtra, UsageError

NAMES = ("cpu", "cuda", "cupy", "jax")


def backend_named(name: str) -> Backend:
    """A backend; UsageError for an unknown name, MissingExtra if its library or device is not
    there."""
    if name not in NAMES:
        raise UsageError(f"no backend {name!r}", hint=f"one of: {', '.join(NAMES)}")
    try:
        return _made(name)
    except ImportError as error:
        raise MissingExtra(f"backend {name}: {error}", hint="install the library") from None
    except Exception as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise MissingExtra(f"backend {name}: {said[0]}", hint="is there a device?") from None


def _made(name: str) -> Backend:
    if name == "cuda":
        from pinchpoint.bench.micro.backends.events import TorchCudaBackend

        return TorchCudaBackend()
    if name == "cupy":
        from pinchpoint.bench.micro.backends.events import CupyBackend

        return CupyBackend()
    if name == "jax":
        from pinchpoint.bench.micro.backends.base import JaxBackend

        return JaxBackend()
    from pinchpoint.bench.micro.backends.base import CpuBackend

    return CpuBackend()


def backend_of(values: Iterable[Any]) -> str:
    """The backend that these values (results, arguments, closure) belong to; ``cpu`` if none."""
    found = {name for value in flat(values) if (name := _home(value))}
    for name in ("cuda", "cupy", "jax"):
        if name in found:
            return name
    return "cpu"


def _home(value: Any) -> str | None:
    """Looks only at libraries that are already imported; nothing else can have made a value."""
    torch, cupy, jax = (sys.modules.get(n) for n in ("torch", "cupy", "jax"))
    if torch is not None and isinstance(value, torch.Tensor):
        return "cuda" if value.device.type == "cuda" else "cpu"
    if torch is not None and isinstance(value, torch.nn.Module):
        return backend_of(list(value.parameters())[:1])
    if cupy is not None and isinstance(value, cupy.ndarray):
        return "cupy"
    if jax is not None and isinstance(value, jax.Array):
        return "jax"
    return None


def flat(values: Iterable[Any], depth: int = 0) -> Iterator[Any]:
    """The values, those inside lists, tuples and dictionaries included."""
    for value in values:
        if isinstance(value, (list, tuple)) and depth < 3:
            yield from flat(value, depth + 1)
        elif isinstance(value, dict) and depth < 3:
            yield from flat(value.values(), depth + 1)
        else:
            yield value


__all__ = ["NAMES", "Backend", "backend_named", "backend_of", "flat"]
