"""How the time of a run passed, from the documents of its folder."""

from pinchpoint.run_folder.documents import ProcessDocument, RunDocument
from pinchpoint.trace import RunCourse


def run_course(run: RunDocument, process: ProcessDocument) -> RunCourse | None:
    """None while a run has not ended."""
    start_ns, end_ns = run.started_unix_ns, run.ended_unix_ns
    if start_ns is None or end_ns is None or end_ns <= start_ns:
        return None
    # The early window begins with the first step that is not cold.
    early = (r.start_unix_ns for r in process.recordings if r.window == "early" and r.steps)
    warm_ns = process.steps.warm_unix_ns or next(early, None)
    before_ns = None if warm_ns is None else min(max(warm_ns - start_ns, 0), end_ns - start_ns)
    total_ns, counted = end_ns - start_ns, None if process.complete else process.steps.count - 2
    after_ns = 0 if before_ns is None else total_ns - before_ns - (process.steps.cost_ns or 0)
    started = [n for n in process.loaders if isinstance(n.num_workers, int) and n.num_workers > 0]
    return RunCourse(
        total_ns=total_ns,
        before_ns=before_ns,
        loader_starts=sum(note.iterators for note in started),
        loader_workers=max((note.num_workers for note in started), default=0),
        loader_start_ns=sum(note.start_ns for note in started),
        counted=counted if counted and counted > 0 and after_ns > 0 else None,
        counted_ns=max(after_ns, 0),
    )
