"""A report beside the curves of its experiment: TensorBoard, Weights & Biases, MLflow.

Each library is imported when it is asked for, and only then. Names of numbers end in their unit;
what is not known is left out.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from pinchpoint.diagnosis.finding import Finding
from pinchpoint.errors import MissingExtra, UsageError, install_hint
from pinchpoint.replacing import replacing
from pinchpoint.report import markdown
from pinchpoint.report.documents.report import Report
from pinchpoint.report.html_page import static
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.words import breakdown as breakdown_words
from pinchpoint.report.words import steps as steps_words

Tracker = Literal["tensorboard", "wandb", "mlflow"]

_PAGE = "pinchpoint.html"
_NS_PER_MS = 1e6


def log_to(
    report: Report,
    to: Tracker,
    *,
    folder: str | Path | None = None,
    run: Any = None,
    step: int | None = None,
    page: str | None = None,
) -> None:
    """Log the numbers of a report, and the report itself, to an experiment tracker.

    ``tensorboard`` writes an event file into ``folder``: scalars, the recorded steps as a curve and
    the report as text. ``wandb`` logs to ``run``, or the current one, and ``mlflow`` to the run
    with the id ``run``, or the active one: numbers, verdict and an HTML page. ``step`` is the
    training step at which the recording was made. ``page`` is the page to log instead of the short
    one, such as that of ``pinchpoint report``.

    Raises MissingExtra without the library and UsageError without a folder or a run.
    """
    if to not in get_args(Tracker):
        raise UsageError(f"no tracker {to!r}", hint=f"one of {', '.join(get_args(Tracker))}")
    if to == "tensorboard":
        if folder is None:
            raise UsageError("tensorboard needs a folder", hint="log_to(..., folder='runs/x')")
        _to_tensorboard(report, Path(folder), step or 0)
    elif to == "wandb":
        _to_wandb(report, run, step, page or static.render(report))
    else:
        _to_mlflow(report, run, step, page or static.render(report))


def _to_tensorboard(report: Report, folder: Path, step: int) -> None:
    try:
        from tensorboard.compat.proto.summary_pb2 import Summary
    except ImportError:
        raise _missing("tensorboard") from None
    summaries = [
        (step, Summary(value=[Summary.Value(tag=name, simple_value=value)]))
        for name, value in scalars(report).items()
    ]
    for number, ms in enumerate(step_series(report)):
        value = Summary.Value(tag="pinchpoint/recorded_steps_ms", simple_value=ms)
        summaries.append((step + number, Summary(value=[value])))
    summaries.append((step, _text(markdown.render(report_page(report, verbose=True)))))
    events = [_event(number, summary) for number, summary in summaries]
    _write_events(folder, events)


def _write_events(folder: Path, events: list[Any]) -> None:
    """One event file, written at once: the library's writer loses what its thread cannot write."""
    import io
    import os
    import time

    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    records = io.BytesIO()
    writer = RecordWriter(records)
    for event in (Event(wall_time=time.time(), file_version="brain.Event:2"), *events):
        writer.write(event.SerializeToString())
    name = f"events.out.tfevents.{time.time_ns() // 10**9:010d}.pinchpoint.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = (folder / name).read_bytes() if (folder / name).exists() else b""
        with replacing(folder / name) as beside:  # another report of the same second stays
            beside.write_bytes(earlier + records.getvalue())
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written ({error.strerror})", hint="name another folder"
        ) from None


def _event(step: int, summary: Any) -> Any:
    import time

    from tensorboard.compat.proto.event_pb2 import Event

    return Event(wall_time=time.time(), step=step, summary=summary)


def _text(text: str) -> Any:
    """What the text dashboard shows as Markdown."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata

    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode("utf-8", "replace")])
    tensor.tensor_shape.dim.add(size=1)
    metadata = create_summary_metadata(display_name="", description="")
    value = Summary.Value(tag="pinchpoint/report", metadata=metadata, tensor=tensor)
    return Summary(value=[value])


def _to_wandb(report: Report, run: Any, step: int | None, page: str) -> None:
    try:
        import wandb
    except ImportError:
        raise _missing("wandb") from None
    run = run or wandb.run
    if run is None:
        raise UsageError("there is no run of W&B", hint="wandb.init(), or log_to(..., run=RUN)")
    logged: dict[str, Any] = dict(scalars(report))
    logged["pinchpoint/report"] = wandb.Html(page, inject=False)
    run.log(logged, step=step)
    run.summary["pinchpoint/verdict"] = report.verdict


def _to_mlflow(report: Report, run: Any, step: int | None, page: str) -> None:
    try:
        import mlflow
    except ImportError:
        raise _missing("mlflow", "mlflow-skinny") from None
    active = mlflow.active_run()
    id_ = run if run is not None else active.info.run_id if active else None
    if id_ is None:
        raise UsageError("there is no run of MLflow", hint="mlflow.start_run(), or log_to(run=ID)")
    client = mlflow.MlflowClient()
    for name, value in scalars(report).items():
        client.log_metric(id_, name, value, step=step or 0)
    client.set_tag(id_, "pinchpoint.verdict", report.verdict)
    client.log_text(id_, page, _PAGE)


def _missing(library: str, package: str = "") -> MissingExtra:
    return MissingExtra(
        f"logging to {library} needs {library}", hint=install_hint("trackers", package or library)
    )


def scalars(report: Report) -> dict[str, float]:
    """The step, where it goes, and what each finding would save; all names begin alike."""
    return {f"pinchpoint/{name}": value for name, value in _named(report)}


def step_series(report: Report) -> tuple[float, ...]:
    """The duration of each complete step of the recording in ms, profiler included."""
    return tuple(ns / _NS_PER_MS for ns in report.steps.duration_ns)


def _named(report: Report) -> Iterator[tuple[str, float]]:
    yield from _known("recorded_step_ms", report.steps.typical_ns)
    yield from _known("step_ms", steps_words.base_ns(report))
    yield from _known("step_if_all_fixed_ms", report.together_ns)
    if report.device is not None and report.device.idle_ratio is not None:
        yield "device_idle_ratio", report.device.idle_ratio
    for part, ns in breakdown_words.all_parts(report):
        yield f"breakdown/{part.part}_ms", ns / _NS_PER_MS
    yield "findings_count", float(len(report.findings))
    for finding in report.findings:
        yield from _finding(report, finding)


def _finding(report: Report, finding: Finding) -> Iterator[tuple[str, float]]:
    base = steps_words.base_ns(report)
    yield from _known(f"findings/{finding.id}/costs_ms", finding.cost_ns_per_step)
    if base is not None and finding.predicted_step_ns is not None:
        saved = base - finding.predicted_step_ns
        yield f"findings/{finding.id}/saves_ms", saved / _NS_PER_MS


def _known(name: str, ns: int | None) -> Iterator[tuple[str, float]]:
    if ns is not None:
        yield name, ns / _NS_PER_MS
