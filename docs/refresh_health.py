"""Writes docs/reference/health.md: what each importer asks of a file; a test compares."""

from pathlib import Path

from pinchpoint.importers.health import FACTS

PAGE = Path(__file__).parent / "reference/health.md"

IMPORTERS = {
    "trace": "Chrome traces: torch.profiler (CUDA, ROCm, NPU), rocprof, JAX's `.trace.json`",
    "nsys": "nsys exports (`.sqlite`)",
    "csv": "tables of `nsys stats`",
    "xplane": "XPlane files",
    "rocm": "AMD's profilers: rocprofv3 (JSON, CSV), rocpd and older databases",
    "ascend": "Ascend's tables of kernels",
    "ncu": "ncu reports",
}

# For each question and importer the facts that answer it, or why it cannot be asked.
QUESTIONS: dict[str, dict[str, tuple[str, ...] | str]] = {
    "Is something in a form that is not read?": {
        "trace": ("phases-unread", "device-unread"),
        "nsys": ("tables-unread", "names-missing"),
        "csv": "other reports are kept as they are printed",
        "xplane": "a device's other lines repeat what its streams say",
        "rocm": ("tables-unread", "names-missing"),
        "ascend": "all that the table says of times and places is read",
        "ncu": ("counters-missing",),
    },
    "Is the device's side or the host's empty?": {
        "trace": ("cpu-only", "device-left-out", "kernels-not-recorded", "no-host-activity"),
        "nsys": ("no-device-activity", "tables-empty"),
        "csv": ("calls-missing",),
        "xplane": ("cpu-only", "no-device-activity", "no-host-activity"),
        "rocm": ("no-device-activity",),
        "ascend": ("calls-missing",),
        "ncu": "a report without a launch is refused",
    },
    "Is it cut off or damaged?": {
        "trace": ("cut-off", "broken-text"),
        "nsys": "a damaged database is refused",
        "csv": ("rows-cut",),
        "xplane": "a damaged message is refused",
        "rocm": ("rows-cut",),
        "ascend": ("rows-cut",),
        "ncu": ("rows-cut",),
    },
    "Did the recorder run full?": {
        "trace": ("events-capped", "stopped-early"),
        "nsys": ("profiler-warning",),
        "csv": "the table has no messages",
        "xplane": "the file says nothing of it",
        "rocm": "the file says nothing of it",
        "ascend": "the table has no messages",
        "ncu": "launches are replayed one by one",
    },
    "Are launches without their device work, or the other way round?": {
        "trace": ("launches-lost", "launches-missing", "graph-captured"),
        "nsys": ("launches-lost", "launches-missing", "graph-captured"),
        "csv": ("launches-lost", "launches-missing"),
        "xplane": ("launches-lost", "launches-missing"),
        "rocm": ("launches-lost", "launches-missing"),
        "ascend": "the table has no calls",
        "ncu": "the report has no calls",
    },
    "Does anything link both?": {
        "trace": ("links-missing", "calls-missing"),
        "nsys": ("links-missing", "calls-missing"),
        "csv": ("calls-missing",),
        "xplane": ("calls-missing",),
        "rocm": ("links-missing", "calls-missing"),
        "ascend": ("calls-missing",),
        "ncu": "the report has no calls",
    },
    "Do the clocks of host and device agree?": {
        "trace": ("starts-before-launch", "clocks-disagree"),
        "nsys": ("clocks-disagree",),
        "csv": ("clocks-disagree",),
        "xplane": ("clocks-disagree",),
        "rocm": ("clocks-disagree",),
        "ascend": "the table has no calls",
        "ncu": "the report has no times of day",
    },
    "Do operations overlap on one stream?": {
        "trace": ("streams-overlap",),
        "nsys": ("streams-overlap",),
        "csv": ("streams-overlap",),
        "xplane": ("streams-overlap",),
        "rocm": ("streams-overlap",),
        "ascend": ("streams-overlap",),
        "ncu": "launches run one by one",
    },
    "Are there times that make no sense?": {
        "trace": ("times-missing", "durations-negative"),
        "nsys": ("times-unsound",),
        "csv": ("times-missing",),
        "xplane": "a file with such times is refused",
        "rocm": ("times-unsound",),
        "ascend": ("times-unsound",),
        "ncu": "the report has no times of day",
    },
    "Are several processes or ranks in it?": {
        "trace": ("processes-several",),
        "nsys": ("processes-several",),
        "csv": ("processes-several",),
        "xplane": "all threads of the host are of one process",
        "rocm": ("processes-several",),
        "ascend": "the table does not say which process asked",
        "ncu": ("processes-several",),
    },
    "Does one process use several devices?": {
        "trace": ("devices-several",),
        "nsys": ("devices-several",),
        "csv": ("devices-several",),
        "xplane": ("devices-several",),
        "rocm": ("devices-several",),
        "ascend": "the table does not say which process asked",
        "ncu": ("devices-several",),
    },
    "Which device and which rank was it?": {
        "trace": ("no-device-properties", "rank-unknown"),
        "nsys": ("no-device-properties", "rank-unknown"),
        "csv": "the table has a name and no properties",
        "xplane": ("no-device-properties", "rank-unknown"),
        "rocm": ("no-device-properties", "rank-unknown"),
        "ascend": ("rank-unknown",),
        "ncu": "the report describes its device, and has no ranks",
    },
}

_HEAD = """\
# What is asked of a file

Before anything is said about time, a file is asked what is wrong with it or missing. Each importer
asks the same questions. A fact in a cell is what the report says where the answer is bad; words in
a cell say why the format cannot answer, so that silence there means nothing. This page is written
by `docs/refresh_health.py`; for every fact in a cell there is a test with a file that shows it.

Memory snapshots are no recordings of time: what they lack is said where it matters (`pinchpoint
memory`). Telemetry and ranks have facts of their own, in the list below.
"""


def text() -> str:
    """The page."""
    parts = [_HEAD]
    for question, answers in QUESTIONS.items():
        head = "| file | fact, or why it cannot be asked |\n|---|---|\n"
        parts.append(f"\n## {question}\n\n{head}")
        parts += [f"| {IMPORTERS[name]} | {_cell(said)} |\n" for name, said in answers.items()]
    parts.append("\n## All facts\n\n| fact | weight | what it says |\n|---|---|---|\n")
    parts += [
        f"| `{id_}` | {kind.severity.name.lower()} | {kind.sentence} |\n"
        for id_, kind in sorted(FACTS.items())
    ]
    return "".join(parts)


def _cell(said: tuple[str, ...] | str) -> str:
    return said if isinstance(said, str) else ", ".join(f"`{fact}`" for fact in said)


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
