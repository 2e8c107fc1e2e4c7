"""Lines that the profiler prints to no consequence, kept out of the program's output.

Its library may be told of a client, which torch is, and asks that to begin when the profiler is
first used: only in the thread that told it, which is the one that imported torch. From any other
it prints an error instead, once a process. What torch would begin there is for recordings that
another process asks for, so that nothing is missing.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

# The first use from another thread than the main one; an operator that began before the recording.
_EXPECTED_MESSAGES = (b"External init callback must run in same thread", b"collection.cpp:")


@contextmanager
def without_expected_messages() -> Iterator[None]:
    """Keep known lines of the profiler out of the program's output; all else is passed on.

    It prints them to no consequence.
    """
    try:
        real = os.dup(2)
    except OSError:  # the program has closed its standard error
        yield
        return
    from tempfile import TemporaryFile

    with TemporaryFile() as kept:
        sys.stderr.flush()
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(real, 2)
            os.close(real)
            kept.seek(0)
            for line in kept:
                if not any(message in line for message in _EXPECTED_MESSAGES):
                    os.write(2, line)


def quiet_beside_main() -> AbstractContextManager[None]:
    """The same in any thread but the main one, which nearly always imports torch."""
    if threading.current_thread() is threading.main_thread():
        return nullcontext()
    return without_expected_messages()
