"""Options that the benchmarks share, and what they turn into."""

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pinchpoint.cli.output import look, must_be_writable, note, show, show_json, write_file, wrote
from pinchpoint.cli.page import Force
from pinchpoint.errors import UsageError

if TYPE_CHECKING:
    import msgspec

    from pinchpoint.bench.measures import Measure
    from pinchpoint.bench.run import RunOptions
    from pinchpoint.report.pages.result import ResultPage

Switch = Parameter(negative="")
Format = Literal["terminal", "json", "markdown", "github"]


@Parameter(name="*")
@dataclass(frozen=True)
class Measuring:
    """How each run is measured.

    Parameters
    ----------
    name
        What the benchmark is called in results and baselines; default: from the command.
    output
        Folder for the results; default: a new one below pinchpoint-bench/.
    timeout
        Seconds after which a run is ended.
    warmup_steps
        Steps to leave out at the start; default: until the steps are steady.
    samples_per_step
        Samples in a step, for throughput in samples/s.
    tokens_per_step
        Tokens in a step, for throughput in tokens/s.
    metric
        A number that the command prints, as NAME=REGEX with one group; the last match counts.
        NAME:higher=REGEX if more is better. May be given again.
    seed
        Passed on as PINCHPOINT_SEED and PYTHONHASHSEED, plus the number of the run (of the pair).
    step_function
        A function of the script (or module:function) whose return ends a step, where neither an
        optimizer nor pinchpoint.step() does.
    end_after
        End each run after so many steps (40), seconds of them (30s), or never. Default: with a
        budget, after a part of it; else never.
    no_steps
        Do not record steps inside the program; wall time and printed numbers remain.
    no_diff
        Do not keep uncommitted changes of the git tree.
    """

    name: str | None = None
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None
    timeout: float | None = None
    warmup_steps: int | None = None
    samples_per_step: float | None = None
    tokens_per_step: float | None = None
    metric: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    seed: int | None = None
    step_function: str | None = None
    end_after: str | None = None
    no_steps: Annotated[bool, Switch] = False
    no_diff: Annotated[bool, Switch] = False

    @property
    def keep_diff(self) -> bool:
        """Whether to keep what is not committed."""
        return not self.no_diff

    def run_options(self, command: tuple[str, ...]) -> "RunOptions":
        """The options of a run of this command."""
        from pinchpoint.bench.run import RunOptions
        from pinchpoint.bench.run.enough import end_of
        from pinchpoint.bench.run.timed import TimingRules

        if self.samples_per_step is not None and self.tokens_per_step is not None:
            raise UsageError("samples or tokens, not both", hint="give one of the two")
        self._check()
        return RunOptions(
            bench_id=self.name or default_name(command),
            timeout_s=self.timeout,
            timing=TimingRules(
                warmup_steps=self.warmup_steps,
                work_per_step=self.tokens_per_step or self.samples_per_step,
                work_unit="tokens" if self.tokens_per_step else "samples",
            ),
            patterns={name: pattern for name, (_, pattern) in self._metrics().items()},
            record_steps=not self.no_steps,
            step_function=self.step_function,
            end_after=end_of(self.end_after),
            seed=self.seed,
        )

    def _check(self) -> None:
        for option, value in (
            ("timeout", self.timeout),
            ("samples-per-step", self.samples_per_step),
            ("tokens-per-step", self.tokens_per_step),
        ):
            if value is not None and not 0 < value < inf:  # also refuses NaN
                raise UsageError(f"--{option} {value:g}: must be above 0", hint=f"--{option} 64")
        for option, count in (("warmup-steps", self.warmup_steps), ("seed", self.seed)):
            if count is not None and count < 0:
                raise UsageError(f"--{option} {count}: starts at 0", hint=f"--{option} 10")

    def custom(self) -> "dict[str, Measure]":
        """The printed numbers as measures."""
        from pinchpoint.bench.measures import custom_measure

        return {
            name: custom_measure(name, "higher" if higher else "lower")
            for name, (higher, _) in self._metrics().items()
        }

    def _metrics(self) -> dict[str, tuple[bool, "re.Pattern[str]"]]:
        return {name: (higher, pattern) for name, higher, pattern in map(_metric, self.metric)}


def _metric(text: str) -> "tuple[str, bool, re.Pattern[str]]":
    name, equals, expression = text.partition("=")
    name, _, direction = name.partition(":")
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise UsageError(f"--metric {text!r}: {error}", hint="check the expression") from None
    if not name or not equals or pattern.groups != 1 or direction not in ("", "higher", "lower"):
        raise UsageError(
            f"--metric {text!r}: expected NAME=REGEX with one group",
            hint=r"for example --metric 'tokens_per_s:higher=tok/s: ([\d.]+)'",
        )
    return name, direction == "higher", pattern


def default_name(command: tuple[str, ...]) -> str:
    """The script of a command, else its program, without folder and suffix."""
    scripts = [word for word in command if word.endswith(".py")]
    modules = [b for a, b in pairwise(command) if a == "-m"]
    return Path((scripts or modules or [command[0]])[0]).name.removesuffix(".py")


def arguments_of(command: tuple[str, ...]) -> tuple[str, ...]:
    """What follows the script, module or code: other arguments are another benchmark."""
    for position, word in enumerate(command):
        if word.endswith(".py"):
            return command[position + 1 :]
        if word in ("-m", "-c"):
            return command[position + 2 :]
    return command[1:]


@Parameter(name="*")
@dataclass(frozen=True)
class Showing:
    """How the result is shown.

    Parameters
    ----------
    json
        The result as one JSON document on standard output, and nothing else.
    markdown
        Markdown, as GitHub shows it.
    format
        terminal, json, markdown or github (annotations, job summary and outputs).
    junit
        Also write JUnit XML to this file.
    sarif
        Also write what failed as SARIF to this file, at the changed line.
    html
        Also write one self-contained page to this file.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    """

    json: Annotated[bool, Switch] = False
    markdown: Annotated[bool, Switch] = False
    format: Format | None = None
    junit: Path | None = None
    sarif: Path | None = None
    html: Path | None = None
    force: Force = False

    def __post_init__(self) -> None:
        """A page that cannot be written is said before anything is measured."""
        for path, beginning in (
            (self.junit, b"<?xml"),
            (self.sarif, b"{"),
            (self.html, b"<!doctype"),
        ):
            if path is not None:
                must_be_writable(path, beginning, force=self.force)

    def chosen(self) -> Format:
        """The one format; UsageError if two were asked for."""
        wanted: list[Format] = [self.format] if self.format else []
        wanted += ["json"] if self.json else []
        wanted += ["markdown"] if self.markdown else []
        if len(set(wanted)) > 1:
            raise UsageError(f"choose one of {' and '.join(wanted)}", hint="one format at a time")
        return wanted[0] if wanted else "terminal"


# ------------------------------------------------------------------------------------------------
# Shows a page in the format that was asked for.


def present(
    document: "msgspec.Struct",
    page: "ResultPage",
    showing: "Showing",
    inputs: Sequence[Path] = (),
) -> None:
    """Write the result to standard output, and to the files that were asked for."""
    chosen = showing.chosen()
    if chosen == "json":
        from pinchpoint.bench.metrics import encode

        show_json(encode(document))
    elif chosen == "markdown":
        from pinchpoint.report import markdown
        from pinchpoint.report.pages.result import blocks

        show(markdown.render(blocks(page)))
    elif chosen == "github":
        _to_github(page)
    else:
        from pinchpoint.report import terminal
        from pinchpoint.report.pages.result import blocks

        show(terminal.render(blocks(page), look()))
    if showing.junit:
        from pinchpoint.report.ci import junit

        write_file(showing.junit, junit(page), inputs=inputs, force=showing.force)
    if showing.sarif:
        from pinchpoint import __version__
        from pinchpoint.export.sarif import result_sarif

        text = result_sarif(page, __version__).decode()
        write_file(showing.sarif, text, inputs=inputs, force=showing.force)
    if showing.html:
        from pinchpoint.report import html
        from pinchpoint.report.pages.result import blocks

        write_file(showing.html, html.render(blocks(page)), inputs=inputs, force=showing.force)
        wrote(showing.html)


def _to_github(page: "ResultPage") -> None:
    from pinchpoint.report import ci, markdown
    from pinchpoint.report.pages.result import blocks

    show(ci.result_log(page, token=secrets.token_hex()))
    for variable, text in (
        ("GITHUB_STEP_SUMMARY", markdown.render(blocks(page))),
        ("GITHUB_OUTPUT", ci.result_outputs(page)),
    ):
        if name := os.environ.get(variable):
            try:
                with Path(name).open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                note(f"note: {variable}: {error.strerror}")
