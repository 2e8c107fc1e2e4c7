"""Which files hold the program's own code, as far as a path tells that in the running process."""

import sysconfig
from functools import lru_cache
from pathlib import Path

_LIBRARIES = tuple(
    {f"{p}/" for name in ("stdlib", "purelib", "platlib") if (p := sysconfig.get_path(name))}
)
_OURS = str(Path(__file__).parents[2]) + "/"


@lru_cache(1 << 14)  # a program with torch has some ten thousand files
def is_own(file: str) -> bool:
    """Not Python's, no installed package's, not Pinchpoint's, not made by a compiler."""
    return not (file.startswith((*_LIBRARIES, _OURS, "<")) or "-packages/" in file)
