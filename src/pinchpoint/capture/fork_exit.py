"""Lets a forked child of a recorded program end.

The profiler keeps a thread that a fork does not copy. When such a child exits in the ordinary way,
a static destructor of the profiler waits for that thread for ever (torch 2.13, with any use of
``torch.profiler`` before a fork). So a child leaves right after the interpreter has ended, with its
output flushed and its own exit code, before static destructors run.
"""

import sys


def leave_before_static_destructors() -> None:
    """To be called in the child, right after the fork. Does nothing where libc is not glibc.

    Handlers run newest first: first everything is flushed, then ``_exit`` gets the status.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        address = ctypes.c_void_p
        libc.on_exit(ctypes.cast(libc._exit, address), None)
        libc.__cxa_atexit(ctypes.cast(libc.fflush, address), None, None)
    except (AttributeError, OSError):
        return
