"""What changed, of a comparison that found the program worse: its profiles and its commits."""

from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note

if TYPE_CHECKING:
    from pinchpoint.bench.ab.result import AbResult
    from pinchpoint.bench.run import Arm
    from pinchpoint.cli.programs.bench.base import Base
    from pinchpoint.cli.programs.bench.options import Measuring
    from pinchpoint.report.pages.result import ResultPage


def with_explanation(
    page: "ResultPage",
    arms: "tuple[Arm, Arm]",
    folder: Path,
    result: "AbResult | None",
    measuring: "Measuring",
    limit_s: float | None = None,
) -> "ResultPage":
    """The page, what the commit changed, which of its lines costs, and what profiles of both arms
    say about it."""
    from pinchpoint.bench.ab.changed_code import changed_code
    from pinchpoint.bench.ab.costly_lines import LineCosts
    from pinchpoint.cli.programs.bench.line_costs import line_costs
    from pinchpoint.cli.programs.bench.profiles import MOST_S, profiles_of
    from pinchpoint.compare.measured import measured_step
    from pinchpoint.report.pages.change import with_change

    base, now = (arm.params.get("commit") for arm in arms)
    code = changed_code(str(base), str(now) if now else None, Path.cwd()) if base else ()
    costs = LineCosts()
    if code and result is not None:
        options = measuring.run_options(arms[1].command)
        costs = line_costs(code, arms, result, options, folder)
    runs = result.runs if result else ()
    together = any(run.at_once for run in runs)
    busy = together or any(run.threads_sleep for run in runs)
    look = f"git diff {str(base)[:10]}{f' {str(now)[:10]}' if now else ''}" if base else None
    found = profiles_of(arms, folder, at_once=together, limit_s=limit_s or MOST_S, look=look)
    step = measured_step(result) if result else None
    return with_change(page, found, step, code, str(base) if base else None, costs, busy=busy)


def explained_check(
    page: "ResultPage",
    before: "Base",
    measuring: "Measuring",
    pairs: "AbResult | None",
    left_s: float,
) -> "ResultPage":
    """The page with what changed; without a base the profile is kept only. ``left_s`` of the budget
    are for profiles, if that is enough for them."""
    from pinchpoint.bench.folders import start_session
    from pinchpoint.bench.run import Arm
    from pinchpoint.cli.programs.bench.profiles import LEAST_S, MOST_S, take_profile

    limit_s = min(max(left_s, LEAST_S), MOST_S)
    if left_s < LEAST_S:
        note(f"worse: profiles say what changed, beyond the budget ({limit_s:.0f} s at most)")
    output = measuring.output
    where = output.with_name(f"{output.name}-profile") if output else None
    with start_session("profile", {"command": list(before.command)}, where) as session:
        if before.at_hand:
            arms, at = before.arms(), session.folder
            page = with_explanation(page, arms, at, pairs, measuring, limit_s)
        else:
            alone = session.folder / "profile-B"
            trace = take_profile(Arm("B", before.command), alone, limit_s=limit_s)
            note(f"profile: pinchpoint diagnose {trace}" if trace else "no profile")
        session.finish()
    return page
