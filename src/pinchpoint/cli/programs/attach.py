"""Ask a running program for one more recording."""

from pinchpoint.capture.launch.attach import record
from pinchpoint.cli.output import note, show_plainly
from pinchpoint.errors import UsageError


def command(pid: int, /, *, timeout: float = 120.0) -> int:
    """Ask the process PID for a recording of its next steps, and say where it is.

    The process must have been started by pinchpoint run, or with Kineto's signal trigger on
    (KINETO_USE_DAEMON=1 and a KINETO_CONFIG with ENABLE_SIGUSR2=YES). That is checked first: the
    signal would end any other process.

    Parameters
    ----------
    pid
        The process; any process of a job that pinchpoint run started stands for all its ranks.
    timeout
        Seconds to wait for the recording.
    """
    if pid <= 1 or timeout <= 0:
        raise UsageError(f"{pid} is no process to record", hint="pinchpoint attach PID")
    for path in record(pid, timeout, note):
        show_plainly(f"{path}\n")
    return 0
