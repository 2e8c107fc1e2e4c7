"""A page for a GitHub workflow: annotations, job summary, outputs.

GitHub shows at most ten annotations of a kind a step and drops the rest without a word, so the
worst ones go first and the last one says how many there are; the whole table is in the summary.
"""

from pinchpoint.report.benchmarks import terminal
from pinchpoint.report.benchmarks.page import Case, Page
from pinchpoint.report.plain import plain

MOST_ANNOTATIONS = 10
_LEVELS = {"fail": "error", "inconclusive": "warning", "warn": "warning"}


def annotations(page: Page) -> str:
    """Workflow commands: errors for what fails, warnings for the rest; nothing for a pass."""
    lines = []
    for level in ("error", "warning"):
        cases = [c for c in page.cases if _LEVELS.get(c.outcome) == level]
        shown = cases if len(cases) <= MOST_ANNOTATIONS else cases[: MOST_ANNOTATIONS - 1]
        lines += [_command(level, page, case) for case in shown]
        if len(cases) > len(shown):
            more = Case("more", cases[0].outcome, f"{len(cases) - len(shown)} more in the summary")
            lines.append(_command(level, page, more))
    return "".join(lines)


def log(page: Page, token: str) -> str:
    """The page as text, in which the runner looks for no commands, then the annotations.

    ``token`` is a word that nobody can guess; commands are off until the runner sees it again.
    """
    text = terminal.render(page)
    return f"::stop-commands::{token}\n{text}::{token}::\n{annotations(page)}"


def outputs(page: Page) -> str:
    """Lines for the file that ``GITHUB_OUTPUT`` names: ``verdict`` and ``regressions``."""
    failed = sum(1 for c in page.cases if c.outcome == "fail")
    return f"verdict={page.verdict or 'none'}\nregressions={failed}\n"


def _command(level: str, page: Page, case: Case) -> str:
    title = _property(plain(f"{page.title}: {case.name}"))
    return f"::{level} title={title}::{_data(plain(case.message, 1000))}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
