"""Lets the device finish what was launched before a recording ends.

A host can be seconds ahead of its device: where a step has few launches, a full queue holds many
steps. What a recording saw launched would then run after its end, and nothing could be said about
it. Waiting for the device is not allowed while the program captures a CUDA graph, in any thread.
"""

import contextlib
import sys
import threading
from typing import Any

CATCH_UP_S = 5.0  # at most: a program that hangs must not keep its recording from being written


class _Captures:
    """How many graphs are being captured now."""

    count = 0
    lock = threading.Lock()

    @classmethod
    def changed(cls, by: int) -> None:
        """A capture begins or ends."""
        with cls.lock:
            cls.count += by


def watch_captures(graphs: Any) -> None:
    """Count the captures of ``torch.cuda.graphs``."""
    enter, leave = graphs.graph.__enter__, graphs.graph.__exit__

    def __enter__(context: Any) -> Any:  # noqa: N807
        _Captures.changed(+1)
        try:
            return enter(context)
        except BaseException:
            _Captures.changed(-1)
            raise

    def __exit__(context: Any, *raised: Any) -> Any:  # noqa: N807
        try:
            return leave(context, *raised)
        finally:
            _Captures.changed(-1)

    graphs.graph.__enter__, graphs.graph.__exit__ = __enter__, __exit__


def let_the_device_catch_up() -> bool:
    """Wait for the devices that this process uses; whether they are done."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or _Captures.count:
        return False
    done = threading.Event()

    def wait() -> None:
        with contextlib.suppress(Exception):
            for device in range(torch.cuda.device_count()):
                if torch.cuda.memory_reserved(device):  # no context is made where there is none
                    torch.cuda.synchronize(device)
            done.set()

    threading.Thread(target=wait, name="pinchpoint-catch-up", daemon=True).start()
    return done.wait(CATCH_UP_S)
