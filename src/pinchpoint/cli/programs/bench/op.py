"""``pinchpoint bench op``."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from pinchpoint.cli.output import show_json, show_plainly
from pinchpoint.cli.programs.bench.options import Switch
from pinchpoint.errors import PinchpointError, UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.micro.timing import Timing

_SCALES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
EXIT_INVALID = 5


@Parameter(name="*")
@dataclass(frozen=True)
class Sampling:
    """How long and where.

    Parameters
    ----------
    backend
        Where the work runs; default: where the result lives.
    precision
        Stop when the median is known to this.
    seconds
        Most time a mode.
    sustained
        Seconds of a further mode without pauses: what a device at its power limit gives.
    no_cold
        Leave out the mode with flushed caches.
    """

    backend: Literal["cpu", "cuda", "cupy", "jax"] | None = None
    precision: str = "0.5%"
    seconds: float = 2.0
    sustained: float = 0.0
    no_cold: Annotated[bool, Switch] = False


def op(
    expression: str,
    /,
    *,
    setup: Annotated[str, Parameter(name=["--setup", "-s"])] = "",
    claim: str | None = None,
    sampling: Sampling | None = None,
    json: Annotated[bool, Switch] = False,
    samples: Annotated[bool, Switch] = False,
) -> int:
    """Time one expression: batched, isolated, hot and cold.

    pinchpoint bench op "x @ y" -s "import torch; x = y = torch.randn(999, 999)"

    Exit code: 0; 5 if the measurement is invalid, and the reason is given.

    Parameters
    ----------
    expression
        What to time; it is evaluated again and again.
    setup
        Statements that run once before.
    claim
        A time that somebody measured, such as 4us; says which mistake explains it.
    json
        One JSON document on standard output.
    samples
        With --json: raw samples too.
    """
    claimed_ns = None if claim is None else _nanoseconds(claim)
    timing = _timed(expression, setup, sampling or Sampling())
    if claimed_ns is not None:
        from pinchpoint.bench.micro.mistakes import explain_claim

        said = explain_claim(timing, claimed_ns)
        said = replace(said, text=f"claim: {said.text}")
        timing = replace(timing, remarks=(*timing.remarks, said))
    if json:
        from pinchpoint.bench.metrics import encode
        from pinchpoint.bench.micro.document import document

        show_json(encode(document(timing, with_samples=samples)))
    else:
        show_plainly(f"{timing}\n")
    return EXIT_INVALID if timing.invalid_reasons else 0


def _timed(expression: str, setup: str, how: Sampling) -> "Timing":
    from pinchpoint.bench.measures import parse_percent
    from pinchpoint.bench.micro.time_function import time_function
    from pinchpoint.bench.micro.timing import StoppingRule

    rule = StoppingRule(
        precision=parse_percent(how.precision),
        most_seconds=how.seconds,
        sustained_seconds=how.sustained,
    )
    names: dict[str, Any] = {}
    try:
        exec(compile(setup, "<setup>", "exec"), names)
        code = compile(expression, "<expression>", "eval")
        eval(code, names)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(said, hint="check --setup and the expression") from None
    used = [names[n] for n in code.co_names if n in names]
    try:
        return time_function(
            lambda *_: eval(code, names),
            *used,
            backend=how.backend,
            name=expression,
            rule=rule,
            cold=not how.no_cold,
        )
    except PinchpointError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UsageError(said, hint="the expression fails when it is evaluated again") from None


def _nanoseconds(text: str) -> float:
    match = re.fullmatch(r"\s*([0-9.]+)\s*(ns|us|µs|ms|s)\s*", text)
    if match is None:
        raise UsageError(f"--claim {text!r} is no time", hint="for example 4us or 1.5ms")
    return float(match[1]) * _SCALES[match[2]]
