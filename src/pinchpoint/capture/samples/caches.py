"""How often the caches of ``functools.lru_cache`` had what they were asked for, when it ends."""

import functools
import gc
import sys
import time
from typing import Any

from pinchpoint.capture.samples.stacks import import_roots, relative

# Blocks that Python holds: to look through a million for caches takes some 10 ms, with the lock.
MOST_BLOCKS = 1_000_000
MOST_CACHES = 32
FIRST_S, AGAIN_RATIO = 4.0, 3.0  # caches of a function go with it: they are looked for now and then
FEWEST_MISSES = 100  # of a cache that is worth a note


class Caches:
    """What was seen of them last."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._wait_s = FIRST_S
        self._at = time.monotonic() + self._wait_s

    def maybe_look(self) -> None:
        """Look for them if it is time to."""
        if time.monotonic() >= self._at:
            self.look()
            self._wait_s *= AGAIN_RATIO
            self._at = time.monotonic() + self._wait_s

    def look(self) -> None:
        """Look for them now."""
        if sys.getallocatedblocks() > MOST_BLOCKS:
            return
        kind = functools._lru_cache_wrapper
        # Not all objects: whoever holds them all holds the tuple that another thread just builds,
        # and Python ends that with a SystemError as no one else may know it yet. Those that refer
        # to the type of caches are found inside one call, which no thread comes between.
        found = (_note(one) for one in gc.get_referrers(kind) if type(one) is kind)
        for note in found:
            if note is not None:
                self._seen[note["file"], note["line"], note["function"]] = note

    def document(self) -> list[dict[str, Any]]:
        """Those with most misses, for the run folder."""
        return sorted(self._seen.values(), key=lambda note: -int(note["misses"]))[:MOST_CACHES]


def _note(cache: Any) -> dict[str, Any] | None:
    # One that another thread just makes does not know yet what it wraps.
    info, wrapped = cache.cache_info(), getattr(cache, "__wrapped__", None)
    code = getattr(wrapped, "__code__", None)
    if code is None or info.maxsize is None or info.misses < FEWEST_MISSES:
        return None
    return {
        "file": relative(code.co_filename, import_roots()),
        "line": code.co_firstlineno,
        "function": code.co_name,
        "hits": info.hits,
        "misses": info.misses,
        "most": info.maxsize,
        "held": info.currsize,
    }
