"""Try changes one at a time, without editing the program, and keep what was learned."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import look, note, show, show_json, show_plainly
from pinchpoint.cli.programs.bench.ab import Deciding, check_pairs, seconds
from pinchpoint.cli.programs.bench.options import Measuring, Switch
from pinchpoint.errors import UsageError
from pinchpoint.json_text import indented
from pinchpoint.regex import regex

if TYPE_CHECKING:
    from pinchpoint.bench.experiments.experiment import Experiment
    from pinchpoint.bench.experiments.knobs import Setting
    from pinchpoint.bench.experiments.search import Wanted
    from pinchpoint.diagnosis.finding import Finding


@Parameter(name="*")
@dataclass(frozen=True)
class Choosing:
    """What to try.

    Parameters
    ----------
    knob
        A built-in knob, as NAME, NAME=VALUE or NAME=VALUE,VALUE. May be given again.
    from_report
        A run folder, a recording or a report (diagnose --json): try what its findings propose, and
        hold the results against their predictions.
    all
        Try every built-in knob.
    search
        Keep each change that is a gain while the next ones are tried, the greatest promise first;
        at the end all that were kept are measured against the start.
    together
        Turn all given knobs at once. The result tells nothing about any one of them.
    list
        List the built-in knobs.
    show
        Show the ledger.
    ledger
        File that keeps the experiments.
    """

    knob: Annotated[list[str], Parameter(negative="")] = field(default_factory=list)
    from_report: Annotated[Path | None, Parameter(name="--from")] = None
    all: Annotated[bool, Switch] = False
    search: Annotated[bool, Switch] = False
    together: Annotated[bool, Switch] = False
    list: Annotated[bool, Switch] = False
    show: Annotated[bool, Switch] = False
    ledger: Path = Path("experiments.jsonl")


def command(
    *program: str,
    pairs: int = 5,
    threshold: str = "3%",
    budget: str = "5m",
    at_once: Annotated[bool, Switch] = False,
    choosing: Choosing | None = None,
    measuring: Measuring | None = None,
    json: Annotated[bool, Switch] = False,
) -> int:
    """Turn one knob at a time and measure it against the program as it is.

    pinchpoint try --knob num_workers=4,8 --knob pin_memory -- python train.py

    Exit code: 0; 5 if an experiment failed.

    Parameters
    ----------
    program
        The command and its arguments, after --.
    pairs
        The most pairs of runs for a knob.
    threshold
        The smallest gain that must not be missed.
    budget
        Time for the runs of a knob, such as 5m or 90s.
    at_once
        On a busy machine run the program with and without the knob at the same time, which sees
        more in less time; files that both write would collide.
    json
        The experiments as JSON on standard output.
    """
    choosing, measuring = choosing or Choosing(), measuring or Measuring()
    if choosing.list:
        show_plainly(_listing())
        return 0
    if choosing.show:
        from pinchpoint.bench.experiments.experiment import read

        _present(read(choosing.ledger), f"experiments in {choosing.ledger}", json=json)
        return 0
    if not program:
        raise UsageError("which program?", hint="pinchpoint try --knob tf32 -- python train.py")
    check_pairs(pairs)
    if choosing.search and choosing.together:
        raise UsageError("--search or --together, not both", hint="--search turns them all in turn")
    wanted = _wanted(choosing)
    from pinchpoint.bench.experiments.search import search

    together = at_once or None
    deciding = Deciding(pairs=pairs, threshold=threshold, budget=budget, at_once=together)
    seconds(budget)  # refused before anything is measured
    measure = partial(_one, program, deciding, choosing, measuring)
    done = search(wanted, measure) if choosing.search else [measure(w, ()) for w in wanted]
    _present(done, f"tried on {done[0].bench_id}", json=json)
    return 5 if any(e.outcome == "failed" for e in done) else 0


def _wanted(choosing: Choosing) -> "list[Wanted]":
    from pinchpoint.bench.experiments.knobs import KNOBS, Setting, settings_of
    from pinchpoint.bench.experiments.search import Wanted

    chosen = [s for text in choosing.knob for s in settings_of(text)]
    if choosing.together:
        names = [s.knob.name for s in chosen]
        if len(chosen) < 2 or len(set(names)) != len(names):
            raise UsageError("--together needs several knobs, one value each", hint="or leave it")
        return [Wanted(tuple(chosen))]
    promised = _from_report(choosing.from_report) if choosing.from_report else []
    if chosen:
        # Of the same value: what one worker gives is nothing that two should be held to.
        predictions = {w.settings: w.prediction for w in reversed(promised)}
        wanted = [Wanted((s,), predictions.get((s,))) for s in chosen]
    else:
        wanted = promised
    if choosing.all:
        wanted += [Wanted((Setting(k, v),)) for k in KNOBS for v in k.values]
    if not wanted:
        raise UsageError(
            "which knob?", hint="--knob NAME (pinchpoint try --list), --from REPORT or --all"
        )
    return wanted


def _from_report(path: Path) -> "list[Wanted]":
    from pinchpoint.bench.experiments.experiment import Prediction
    from pinchpoint.bench.experiments.search import Wanted
    from pinchpoint.cli.programs.bench.expected import read_report

    report = read_report(path)
    steps = report.steps
    step = steps.base_ns or steps.unprofiled_ns_predicted or steps.typical_ns
    wanted: list[Wanted] = []
    for finding in report.findings:
        prediction = None
        if step and finding.predicted_step_ns:
            bounds = finding.predicted_range_ns
            prediction = Prediction(
                finding.id,
                step / finding.predicted_step_ns - 1,
                (step / bounds[1] - 1, step / bounds[0] - 1) if bounds and bounds[0] > 0 else None,
            )
        wanted += [Wanted((s,), prediction) for s in _settings_for(finding)]
    undecided = (item.record or "" for item in report.not_checked if item.fits)
    wanted += [Wanted((s,)) for text in undecided for s in _said(text)]
    once: dict[tuple[Setting, ...], Wanted] = {}
    for one in wanted:
        once.setdefault(one.settings, one)
    wanted = list(once.values())
    if not wanted:
        ids = ", ".join(f.id for f in report.findings)
        if not ids:
            raise UsageError(f"{path}: no finding, of which a change could be tried",
                             hint="name one: --knob NAME (pinchpoint try --list)")  # fmt: skip
        raise UsageError(f"no built-in knob fixes {ids}", hint="change the code, then bench ab")
    return wanted


_KNOB = regex(r"--knob ([a-z0-9_]+(?:=\w+)?)")


def _settings_for(finding: "Finding") -> "list[Setting]":
    """With the value that the finding says for this machine, else the usual ones."""
    from pinchpoint.bench.experiments.knobs import proposed
    from pinchpoint.diagnosis.registry import rules

    known = rules().get(finding.id)  # a report of another version may have other rules
    said = _said(finding.confirm or "")
    names = {s.knob.name for s in said}
    others = proposed(n for n in (known.rule.knobs if known else ()) if n not in names)
    return [*said, *others]


def _said(command: str) -> "list[Setting]":
    """The knobs of a command of ours, at its values."""
    from pinchpoint.bench.experiments.knobs import settings_of

    return [s for text in _KNOB.findall(command) for s in settings_of(text)]


def _one(
    program: tuple[str, ...],
    deciding: Deciding,
    choosing: Choosing,
    measuring: Measuring,
    wanted: "Wanted",
    kept: "tuple[Setting, ...]",
) -> "Experiment":
    from pinchpoint.bench.ab import AbPlan
    from pinchpoint.bench.experiments.experiment import append, experiment
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.measures import parse_percent
    from pinchpoint.bench.run import Arm
    from pinchpoint.monitor.environment import redacted_command

    base = Arm("B", program)
    text = " ".join(s.text for s in wanted.settings)
    below = ", ".join(s.text for s in kept)
    note(f"trying {text}" + (f", on top of {below}" if below else ""))
    name = text.replace("/", "_") + (", confirmed" if wanted.confirms else "")
    folder = measuring.output / name if measuring.output else None
    asked = {"command": redacted_command(program), "knobs": text}
    diff = measuring.keep_diff
    with measurement("try", asked, folder, keep_diff=diff, program=program) as session:
        plan = AbPlan(
            base,
            base,
            session.options(replace(measuring, output=None).run_options(program)),
            threshold=parse_percent(deciding.threshold),
            custom=measuring.custom(),
            most_pairs=deciding.most_pairs,
            budget_s=deciding.budget_s,
            at_once=deciding.at_once,
        )
        done = experiment(base, wanted.settings, plan, session, note, wanted.prediction, kept)
    append(choosing.ledger, done)
    note(f"{text}: {done.outcome} ({done.why})")
    return done


def _present(experiments: "list[Experiment]", title: str, *, json: bool) -> None:
    if json:
        show_json(indented(experiments))
        return
    from pinchpoint.report import terminal
    from pinchpoint.report.pages import experiments as page_of
    from pinchpoint.report.pages.result import blocks

    show(terminal.render(blocks(page_of.page(experiments, title)), look()))


def _listing() -> str:
    from pinchpoint.bench.experiments.knobs import KNOBS

    lines = []
    for knob in KNOBS:
        warning = " (changes numbers)" if knob.changes_numbers else ""
        lines.append(f"{knob.name}={','.join(knob.values)}: {knob.what}{warning}; keep: {knob.fix}")
    return "\n".join(lines) + "\n"
