"""``pinchpoint bench serve``."""

import os
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from pinchpoint.cli.output import note, wrote
from pinchpoint.cli.programs.bench.options import Showing, Switch, present
from pinchpoint.errors import MeasurementInvalid, UsageError

if TYPE_CHECKING:
    from pinchpoint.bench.result import BenchResult
    from pinchpoint.bench.serve.load import Prompt
    from pinchpoint.bench.serve.run import ServePlan
    from pinchpoint.bench.serve.sweep import Sweep, SweepPoint


@Parameter(name="*")
@dataclass(frozen=True)
class Asking:
    """What is asked.

    Parameters
    ----------
    model
        The model's name at the server.
    prompts
        JSON lines with "prompt" and perhaps "max_tokens", or conversations in ShareGPT's form
        (their answers bound the output); default: words at random.
    input_words
        Words of a random prompt.
    shared_prefix
        Words before every prompt, the same in all, as a system prompt is.
    output_tokens
        Most tokens of an answer.
    chat
        Use the chat form of request.
    body
        Further fields of the request, as JSON, such as '{"ignore_eos": true}'.
    api_key_env
        Variable with the server's key; it is never written anywhere.
    """

    model: str = "default"
    prompts: Path | None = None
    input_words: int = 256
    shared_prefix: int = 0
    output_tokens: int = 128
    chat: Annotated[bool, Switch] = False
    body: str = "{}"
    api_key_env: str = "OPENAI_API_KEY"


@Parameter(name="*")
@dataclass(frozen=True)
class Loading:
    """How requests arrive.

    Parameters
    ----------
    requests
        Requests of a run, after the warm-up. Default: 200, or as many as --percentile needs.
    percentile
        p90, p95 or p99: of a run there are enough requests for an interval of it, both ends.
    request_rate
        Open loop: arrivals a second (Poisson). Default: closed loop.
    ramp
        Open loop: the rate rises through the load, as 1:16; where does the server saturate?
    sweep
        Open loop at several rates, as 1,2,4,8, one load each: where does the server saturate?
    max_concurrency
        Closed loop: clients that each wait for their answer.
    num_warmups
        Requests before each run that do not count.
    goodput
        An objective in ms, such as ttft:200, tpot:50 or e2e:2000. May be given again.
    timeout
        Seconds after which a request has failed.
    seed
        Of arrivals and random prompts; run i uses seed + i.
    """

    requests: Annotated[int | None, Parameter(name=["--requests", "-n"])] = None
    percentile: Literal["p90", "p95", "p99"] | None = None
    request_rate: float | None = None
    ramp: str | None = None
    sweep: str | None = None
    max_concurrency: int = 8
    num_warmups: int = 5
    goodput: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    timeout: float = 120.0
    seed: int = 0

    @property
    def count(self) -> int:
        """Requests of a run."""
        from pinchpoint.bench.statistics.intervals import least_count

        least = least_count(int(self.percentile[1:]) / 100) if self.percentile else 1
        if self.requests is None:
            return max(_REQUESTS, least)
        if self.requests < least:
            raise UsageError(
                f"{self.requests} requests: an interval of {self.percentile} needs {least}",
                hint=f"--requests {least}, or leave it out",
            )
        return self.requests


_REQUESTS = 200  # an interval of p95 has both its ends from 72 on


def serve(
    url: str,
    /,
    *,
    runs: int = 3,
    name: str = "serve",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    asking: Asking | None = None,
    loading: Loading | None = None,
    showing: Showing | None = None,
) -> int:
    """Measure an OpenAI-compatible server: TTFT, TPOT, ITL, end to end, goodput.

    pinchpoint bench serve http://localhost:8000/v1/completions --model NAME --request-rate 4

    Parameters
    ----------
    url
        The completions or chat resource.
    runs
        Loads, one after the other; a load is the sample.
    name
        What the benchmark is called in results and baselines.
    output
        Folder for the results; default: a new one below pinchpoint-bench/.
    """
    from pinchpoint.report.pages.bench import serve_page, sweep_page

    if loading is not None and (loading.sweep is not None or loading.ramp is not None):
        curve = _swept if loading.ramp is None else _ramped
        found = curve(url, name, output, asking or Asking(), loading)
        if not any(point.answered_per_s for point in found.points):
            raise MeasurementInvalid("no request was answered", hint=f"is {url} up?")
        present(found, sweep_page(found), showing or Showing())
        return 0
    result = _measured(url, runs, name, output, asking or Asking(), loading or Loading())
    present(result, serve_page(result), showing or Showing())
    return 0


def _measured(
    url: str, runs: int, name: str, output: Path | None, asking: Asking, loading: Loading
) -> "BenchResult":
    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.result import BenchResult
    from pinchpoint.bench.run import Place
    from pinchpoint.bench.serve.client import require_http
    from pinchpoint.bench.serve.run import serve_run
    from pinchpoint.monitor.environment import fingerprint, redacted_command

    _check(runs, asking, loading)
    require_http()
    command = tuple(redacted_command(["bench", "serve", url]))
    with measurement(
        "serve", {"url": command[-1], "runs": runs}, output, keep_diff=False
    ) as session:
        done = []
        for i in range(runs):
            note(f"load {i + 1} of {runs}")
            plan = _plan(url, name, asking, loading, i, session.session.session_id)
            done.append(serve_run(plan, Place(session.session.folder / f"runs/{i:03d}", i)))
        result = BenchResult(
            session_id=session.session.session_id,
            bench_id=name,
            kind="serve",
            created_utc=utc_now(),
            command=command,
            params=done[0].params,
            runs=tuple(done),
            environment=dict(session.environment),
            env_key=fingerprint(session.environment),
            warnings=session.warnings,
        )
        wrote(session.finish(result))
    if not any(run.valid for run in done):
        reasons = sorted({r for run in done for r in run.invalid_reasons})
        raise MeasurementInvalid(f"no load is valid: {'; '.join(reasons)}", hint=f"is {url} up?")
    return result


def _swept(url: str, name: str, output: Path | None, asking: Asking, loading: Loading) -> "Sweep":
    """A load at each rate, lowest first, and up to three where it looks beyond the knee; it ends at
    the first rate that the server falls behind at, as every higher one would only queue."""
    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.run import Place
    from pinchpoint.bench.serve.client import require_http
    from pinchpoint.bench.serve.run import serve_run
    from pinchpoint.bench.serve.sweep import Sweep, beyond, judged, knee, point, swept
    from pinchpoint.bench.summary import summary_of_rates
    from pinchpoint.monitor.environment import redacted_command

    rates = _rates(loading.sweep or "", "--sweep", "--sweep 1,2,4,8")
    _check(1, asking, loading)
    require_http()
    asked = {"url": redacted_command(["bench", "serve", url])[-1], "rates": list(rates)}
    with measurement("sweep", asked, output, keep_diff=False) as session:

        def send(rate: float, i: int) -> "SweepPoint":
            at_rate = replace(loading, request_rate=rate)
            plan = _plan(url, name, asking, at_rate, i, session.session.session_id)
            run = serve_run(plan, Place(session.session.folder / f"runs/{i:03d}", i))
            return point(run, plan.load)

        found = judged(swept(rates, send, note))
        result = Sweep(
            session_id=session.session.session_id,
            bench_id=name,
            model=asking.model,
            objectives_ms=dict(_objective(text) for text in loading.goodput),
            points=found,
            knee_per_s=knee(found),
            beyond_per_s=beyond(found),
            saturates=beyond(found) is not None,
            warnings=session.warnings,
        )
        said = summary_of_rates(result, session.environment, utc_now())
        wrote(session.finish(result, said=said))
    return result


def _ramped(url: str, name: str, output: Path | None, asking: Asking, loading: Loading) -> "Sweep":
    """One load whose rate rises; its parts are the points of the curve."""
    from msgspec.structs import replace as changed

    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.run import Place
    from pinchpoint.bench.serve.client import require_http
    from pinchpoint.bench.serve.run import serve_requests
    from pinchpoint.bench.serve.sweep import RAMP_PARTS, Sweep, beyond, judged, knee, ramp_points
    from pinchpoint.bench.summary import summary_of_rates
    from pinchpoint.monitor.environment import redacted_command

    rates = _rates((loading.ramp or "").replace(":", ","), "--ramp", "--ramp 1:16")
    _check(1, asking, loading)
    if loading.count < 2 * RAMP_PARTS:
        raise UsageError(f"{loading.count} requests are too few for a ramp", hint="-n 400")
    require_http()
    asked = {"url": redacted_command(["bench", "serve", url])[-1], "rates": list(rates)}
    with measurement("sweep", asked, output, keep_diff=False) as session:
        note(f"{rates[0]:g} to {rates[-1]:g} requests a second")
        at_rate = replace(loading, request_rate=rates[0])
        plan = _plan(url, name, asking, at_rate, 0, session.session.session_id)
        plan = replace(plan, load=replace(plan.load, rate_end_per_s=rates[-1]))
        run, requests = serve_requests(plan, Place(session.session.folder / "runs/000"))
        parts = ramp_points(requests, plan.load, plan.objectives_ms)
        lag_ms = run.counters.get("generator_lag_p95_ms") or 0.0
        found = judged([changed(part, lag_ms=lag_ms) for part in parts])
        result = Sweep(
            session_id=session.session.session_id,
            bench_id=name,
            model=asking.model,
            objectives_ms=dict(plan.objectives_ms),
            points=found,
            ramp=True,
            knee_per_s=knee(found),
            beyond_per_s=beyond(found),
            saturates=beyond(found) is not None,
            warnings=(*session.warnings, *run.invalid_reasons),
        )
        said = summary_of_rates(result, session.environment, utc_now())
        wrote(session.finish(result, said=said))
    return result


def _rates(text: str, option: str, example: str) -> tuple[float, ...]:
    try:
        rates = sorted({float(part) for part in text.split(",")})
    except ValueError:
        rates = []
    if len(rates) < 2 or not all(0 < rate < inf for rate in rates):
        raise UsageError(f"{option} {text!r}: rates above 0, two at least", hint=example)
    return tuple(rates)


def _check(runs: int, asking: Asking, loading: Loading) -> None:
    if min(runs, loading.count, loading.max_concurrency, asking.output_tokens) < 1:
        raise UsageError("runs, requests, concurrency and tokens start at 1", hint="such as 8")
    if min(loading.num_warmups, loading.seed, asking.shared_prefix) < 0:
        raise UsageError(
            "--num-warmups, --seed and --shared-prefix start at 0", hint="leave them out"
        )
    if sum(r is not None for r in (loading.sweep, loading.ramp, loading.request_rate)) > 1:
        hint = "--sweep 1,2,4,8"
        raise UsageError("--sweep, --ramp or --request-rate: one of them", hint=hint)
    for option, value in (("request-rate", loading.request_rate), ("timeout", loading.timeout)):
        if value is not None and not 0 < value < inf:  # also refuses NaN
            raise UsageError(f"--{option} {value:g}: must be above 0", hint=f"--{option} 4")


def _plan(
    url: str, name: str, asking: Asking, loading: Loading, run: int, session_id: str
) -> "ServePlan":
    from pinchpoint.bench.serve.client import endpoint
    from pinchpoint.bench.serve.load import Load
    from pinchpoint.bench.serve.run import ServePlan

    key = os.environ.get(asking.api_key_env)
    seed = loading.seed + run
    return ServePlan(
        bench_id=name,
        where=endpoint(url, {"Authorization": f"Bearer {key}"} if key else {}),
        model=asking.model,
        prompts=_prompts(asking, loading, seed),
        load=Load(
            loading.count, loading.request_rate, concurrency=loading.max_concurrency, seed=seed
        ),
        max_tokens=asking.output_tokens,
        chat=asking.chat,
        shared_prefix=asking.shared_prefix,
        extra=_extra(asking.body),
        objectives_ms=dict(_objective(text) for text in loading.goodput),
        warmup_requests=loading.num_warmups,
        timeout_s=loading.timeout,
        session_id=session_id,
    )


def _prompts(asking: Asking, loading: Loading, seed: int) -> "list[Prompt]":
    from pinchpoint.bench.serve.load import prompts_from, random_prompts, with_prefix

    if asking.prompts:
        found = prompts_from(asking.prompts)
    else:
        found = random_prompts(loading.count + loading.num_warmups, asking.input_words, seed)
    return with_prefix(found, asking.shared_prefix, loading.seed)


def _extra(text: str) -> dict[str, Any]:
    import json

    try:
        extra = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--body: {error}", hint="give a JSON object") from None
    if not isinstance(extra, dict):
        raise UsageError("--body: not an object", hint="such as '{\"ignore_eos\": true}'")
    return extra


def _objective(text: str) -> tuple[str, float]:
    kind, _, limit = text.partition(":")
    try:
        number = float(limit.removesuffix("ms"))
    except ValueError:
        number = 0.0
    if kind not in ("ttft", "tpot", "e2e") or number <= 0:
        raise UsageError(f"--goodput {text!r}", hint="ttft:200, tpot:50 or e2e:2000 (ms)")
    return kind, number
