"""Documents of tools whose keys leave their unit to the manual: which tool, and which unit."""

from collections.abc import Mapping

from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.units import Unit, unit_of
from pinchpoint.regex import regex


@dataclass(frozen=True)
class Shape:
    """A tool, the words that its documents begin with, and units by key."""

    tool: str
    words: tuple[bytes, ...]
    units: Mapping[str, Unit]


def _all(unit: str, *names: str) -> dict[str, Unit]:
    return dict.fromkeys(names, unit_of(unit))


_SPREAD = ("mean", "stddev", "median", "min", "max")
SHAPES = (
    # https://github.com/sharkdp/hyperfine: seconds
    Shape("hyperfine", (b'"results"', b'"command"', b'"stddev"'),
          _all("s", *_SPREAD, "user", "system", "times")),
    # pytest-benchmark: seconds, and rounds a second
    Shape("pytest-benchmark", (b'"machine_info"',),
          _all("s", *(f"stats.{n}" for n in (*_SPREAD, "iqr", "q1", "q3", "total", "ld15iqr",
                                             "hd15iqr")))),
    Shape("Google Benchmark", (b'"context"', b'"library_build_type"'), {}),
    # k6 run --summary-export: milliseconds
    Shape("k6", (b'"metrics"', b'"iteration_duration"'), _all("ms", "avg", "min", "med", "max",
                                                             "p(90)", "p(95)", "p(99)")),
    # the Trainer of transformers: seconds
    Shape("transformers", (b'"log_history"',), _all("s", "train_runtime", "eval_runtime")),
    Shape("transformers", (b'"best_model_checkpoint"',),
          _all("s", "train_runtime", "eval_runtime")),
)  # fmt: skip
# Columns of Locust's tables: milliseconds, as its documentation says.
LOCUST = (b"Type,Name,Request Count", b"Timestamp,User Count,Type,Name")
LOCUST_TIMES = regex(r".*Response Time|\d[\d.]*%")


def shape_of(head: bytes) -> Shape | None:
    """Whose document begins like this; None where it is nobody's."""
    return next((one for one in SHAPES if all(word in head for word in one.words)), None)


__all__ = ["LOCUST", "LOCUST_TIMES", "Shape", "shape_of"]
