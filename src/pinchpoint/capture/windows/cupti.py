"""Keeps CUPTI attached to the process where XLA's profiler would detach it.

At the end of each recording XLA calls ``cuptiFinalize``. What the driver made of CUDA graphs
meanwhile holds what CUPTI added, and the next launch of such a graph fails with
CUDA_ERROR_LAUNCH_FAILED, which ends the program: a compiled loop on an H200 (CUDA 13, jaxlib
0.11, command buffers as they are by default) in 6 runs of 6, after one recording or several. It
went on in both runs in which CUPTI stayed, and in one without command buffers (jax issue 40260 has
others). XLA has no option for that, and CUPTI that stays is what torch does. So the function
returns at once, in the memory of this process: NVIDIA's file is left as it is.
"""

import mmap
import platform
import sys
from pathlib import Path

_AT_ONCE = b"\x31\xc0\xc3"  # x86-64: xor eax, eax; ret. 0 is CUPTI_SUCCESS
_LANDING = b"\xf3\x0f\x1e\xfa"  # endbr64, which has to stay where a function begins with it
_READ_EXECUTE, _ALL = 5, 7  # PROT_* of mprotect


def keep_attached() -> bool:
    """Whether every CUPTI in this process stays from now on; False where that cannot be had.

    Elsewhere than on x86-64, and where a policy forbids to change code in memory.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        return all(map(_returns_at_once, _loaded()))
    except (OSError, AttributeError, ValueError):
        return False


def _loaded() -> set[str]:
    maps = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    paths = (line.split(maxsplit=5)[-1] for line in maps if "/libcupti.so" in line)
    return {path for path in paths if Path(path).name.startswith("libcupti.so")}


def _returns_at_once(library: str) -> bool:
    # Imported here since it is rarely needed.
    import ctypes

    function = ctypes.CDLL(library).cuptiFinalize
    at = ctypes.cast(function, ctypes.c_void_p).value
    if at is None:
        return False
    if ctypes.string_at(at, len(_LANDING)) == _LANDING:
        at += len(_LANDING)
    if ctypes.string_at(at, len(_AT_ONCE)) == _AT_ONCE:
        return True
    page = at - at % mmap.PAGESIZE
    size = ctypes.c_size_t(at + len(_AT_ONCE) - page)
    mprotect = ctypes.CDLL(None).mprotect
    if mprotect(ctypes.c_void_p(page), size, _ALL):
        return False
    ctypes.memmove(at, _AT_ONCE, len(_AT_ONCE))
    mprotect(ctypes.c_void_p(page), size, _READ_EXECUTE)
    return True
