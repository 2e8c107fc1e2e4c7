"""When to look for what comes round in a program: while nothing else marks its steps, nor will."""

import sys
import threading

from pinchpoint.capture.process.policy import optimizer_exists
from pinchpoint.capture.process.session import LOOP, CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.stalls import STALLED_S, WARM_UP_S, stopped
from pinchpoint.capture.samples.sampler import OURS
from pinchpoint.capture.samples.stacks import frames_of_threads, stack_of
from pinchpoint.capture.windows import jax_works

MOST_THREADS = 32  # that are looked at, 20 µs each; the others do the same
SOON_S = 2.0  # an early recording waits so long for what may soon be known to come round


def look_for_loops(session: CaptureSession, *, works: bool) -> bool:
    """Look once; whether it is worth waiting for what comes round. ``works``: with torch."""
    loops = session.loops
    if loops.chosen and _is_lost(session):
        loops.lost()
    if not _may_look(session, works=works):
        return False
    if not loops.chosen:
        main = threading.main_thread().ident or 0
        loops.look(stack_of(main))
        session.threaded.look(stack_of(one) for one in _others(main))
    return loops.soon


def rounds_were_all(session: CaptureSession) -> bool:
    """Whether nothing is left to watch for, now that steps were recorded. A loop may have prepared
    what comes then: another one is looked for that lasts half as long, and where none is known for
    longer than it took, all is as if it had not been."""
    if session.steps_by != LOOP or session.loops.over or session.ended or session.settings.repeat:
        return True
    if session.stage is not Stage.DONE or not stopped(session.clock, WARM_UP_S):
        return False
    loops = session.loops
    if loops.chosen and not loops.changed:
        loops.lost()
    if not loops.chosen and _may_look(session, works=True):
        loops.look(stack_of(threading.main_thread().ident or 0), session.outlasts_ns)
    silent_ns = 1e9 * session.clock.since_last_s
    if not loops.chosen and silent_ns > max(1e9 * STALLED_S, session.clock.lasted_ns):
        session.carefully(session.forget_rounds)
    return False


def _others(main: int) -> list[int]:
    """Threads of the program beside the main one."""
    known = threading._active  # type: ignore[attr-defined]
    there = [ident for ident in tuple(frames_of_threads()) if ident != main and ident in known]
    return [i for i in there if not known[i].name.startswith(OURS)][:MOST_THREADS]


def _may_look(session: CaptureSession, *, works: bool) -> bool:
    """Ranks of a job would each find another loop, or begin to count at another turn of it."""
    settings = session.settings
    none_come = session.is_unmarked and session.fetches <= 1
    without = not works and "torch" not in sys.modules and "jax" not in sys.modules
    return (
        none_come
        and (works or without)
        and session.identity.world_size == 1
        and settings.tool == "torch"
        and settings.after_s is None
        and not (settings.cell or optimizer_exists() or jax_works())
    )


def _is_lost(session: CaptureSession) -> bool:
    """Whether it comes no more, and nothing was recorded that counts."""
    if not session.clock.edges:
        return not session.loops.soon
    return not session.steady_recorded and stopped(session.clock, WARM_UP_S)
