"""A report with the real lines of the program beside its findings, where they are at hand."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.diagnosis.commands import Program, program_of
from pinchpoint.diagnosis.finding import Code, Finding, Location
from pinchpoint.diagnosis.registry import rules
from pinchpoint.program.files import Source, roots_for, source_of
from pinchpoint.trace import RunSamples, Trace

if TYPE_CHECKING:
    from pinchpoint.program.changes import Edit


LINES_AROUND = 2  # before and after the line that a finding names
# Knobs of ``pinchpoint try`` that are no matter of the line where the time goes.
_OF_THE_PROCESS = frozenset(
    {"omp_threads", "expandable_segments", "batch_size", "channels_last", "autocast", "tf32"}
    | {"persistent_workers", "prefetch_factor"}
)
MOST_LINES = 30  # of one finding


def with_code(findings: Sequence[Finding], trace: Trace) -> tuple[Finding, ...]:
    """The findings with the lines that they name and an edit that fits these, where known.

    Without an edit, the lines are shown unless the fix is a setting of the process or a change of
    the whole program: that stands elsewhere.
    """
    run = trace.run
    roots = roots_for(
        Path(str(trace.source.path)),
        run.working_directory if run else None,
        run.command if run else (),
    )
    program = program_of(trace)
    samples = run.samples if run else None
    shown = (_with_lines(finding, roots, program, samples) for finding in findings)
    return tuple(_dated(finding, trace.origin_ns, roots) for finding in shown)


def _dated(finding: Finding, recorded_ns: int | None, roots: Sequence[Path]) -> Finding:
    """The finding, saying of its lines whether their file was written after the recording."""
    if finding.code is None or recorded_ns is None:
        return finding
    inmost = sorted(roots, key=lambda root: -len(root.parts))
    there = (root / finding.code.file for root in inmost)
    path = next((path for path in there if path.is_file()), None)
    if path is None or path.stat().st_mtime_ns <= recorded_ns:
        return finding
    return msgspec.structs.replace(finding, code=msgspec.structs.replace(finding.code, newer=True))


def _with_lines(
    finding: Finding, roots: Sequence[Path], program: Program, samples: RunSamples | None
) -> Finding:
    at = finding.location
    if at is None or at.file is None or at.line is None:
        return finding
    source = source_of(at.file, at.line, at.function, roots)
    if source is None:
        return finding
    from pinchpoint.program.edits import AT_LINE, ELSEWHERE, LOADER, edit_for

    if finding.id in ELSEWHERE:
        return _with_lines_elsewhere(finding, source, roots)
    if any(e.what == "turns of dimensions in the steps" and not e.value for e in finding.evidence):
        from pinchpoint.program.layouts import dense_where_turned

        if (edit := dense_where_turned(source)) is not None:
            return _moved_to(finding, source, edit, roots)
    settings = LOADER.get(finding.id)  # which the fix may leave alone
    asked = settings is None or any(one in (finding.hint or "") for one in settings)
    edit = edit_for(finding.id, source, at.line, program.workers) if asked else None
    if edit is None and _is_made_elsewhere(finding.id):
        return finding
    code = _code(source, at.line if edit else _looked_at(source, at, samples), edit, roots)
    if edit is None and finding.id in AT_LINE:  # an example would be of another line than this
        return msgspec.structs.replace(finding, code=code, hint=None)
    return msgspec.structs.replace(finding, code=code)


def _with_lines_elsewhere(finding: Finding, source: Source, roots: Sequence[Path]) -> Finding:
    """The finding at the line that its fix changes; without lines where that is not found."""
    count = next((e.value for e in finding.evidence if e.what == "cores allowed"), None)
    from pinchpoint.program.edits import edit_for

    edit = edit_for(finding.id, source, 0, count if count is None else max(int(count), 1))
    return finding if edit is None else _moved_to(finding, source, edit, roots)


def _moved_to(finding: Finding, source: Source, edit: "Edit", roots: Sequence[Path]) -> Finding:
    """The finding at the line of an edit elsewhere in the file."""
    if finding.location is None:
        return finding
    function = source.function_at(edit.first)
    place = Location(file=finding.location.file, line=edit.first, function=function)
    code = _code(source, edit.first, edit, roots)
    return msgspec.structs.replace(finding, location=place, code=code)


def _looked_at(source: Source, at: Location, samples: RunSamples | None) -> int:
    """The line of the function that most looks at the run saw, where the recording has only the
    line at which it begins."""
    assert at.line is not None
    if samples is None or not source.begins_at(at.line):
        return at.line
    lines: Counter[int] = Counter()
    for thread in samples.threads:
        for stack, looks in thread.stacks:
            own = own_frame(samples.spelt(stack))
            if own is not None and (own.file, own.function) == (at.file, at.function):
                lines[own.line] += looks
    most = (line for line, _ in lines.most_common())
    within = [line for line in most if source.same_function(line, at.line)]
    return within[0] if within else at.line


def _is_made_elsewhere(rule_id: str) -> bool:
    rule = rules()[rule_id].rule
    return rule.generic or not _OF_THE_PROCESS.isdisjoint(rule.knobs)


def _code(source: Source, line: int, edit: "Edit | None", roots: Sequence[Path]) -> Code:
    first, last = (line, line) if edit is None else (edit.first, edit.last)
    begin, end = max(first - LINES_AROUND, 1), min(last + LINES_AROUND, len(source.lines))
    shown = source.lines[begin - 1 : min(end, begin - 1 + MOST_LINES)]
    new = None
    if edit is not None and last - begin < MOST_LINES:
        new = (*source.lines[begin - 1 : first - 1], *edit.new, *source.lines[last:end])
    return Code(
        file=_short(source.path, roots),
        first_line=begin,
        lines=tuple(shown),
        edited=new,
    )


def _short(path: Path, roots: Sequence[Path]) -> str:
    inside = [root for root in roots if path.is_relative_to(root)]
    return str(path.relative_to(max(inside, key=lambda r: len(r.parts)))) if inside else str(path)
