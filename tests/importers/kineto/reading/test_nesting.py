import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kineto_documents import SCANNERS
from pinchpoint.importers.kineto.reading.nesting import NONE, TOLERANCE_NS, Rows
from pinchpoint.importers.kineto.reading.scanner import nest


def nested(rows, calls=(), scanner="plain"):
    """Parents, enclosing rows and crossings of (start, end, thread) triples in nesting order."""
    rows, calls = list(rows), list(calls)
    threads = 1 + max((r[2] for r in [*rows, *calls]), default=0)
    found = nest(
        Rows(*columns(rows), np.ones(len(rows), np.uint8)), columns(calls), threads, scanner
    )
    return found.parent.tolist(), found.enclosing.tolist(), found.crossings


def columns(rows):
    start, end, thread = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(start, np.int64), np.array(end, np.int64), np.array(thread, np.int32)


@pytest.mark.parametrize("scanner", SCANNERS)
def test_known_nesting(scanner):
    rows = [
        (0, 100_000, 0),
        (10_000, 50_000, 0),
        (20_000, 30_000, 0),
        (25_000, 26_000, 1),
        (60_000, 70_000, 0),
    ]
    calls = [(22_000, 23_000, 0), (80_000, 81_000, 0), (200_000, 300_000, 0)]
    assert nested(rows, calls, scanner) == ([NONE, 0, 1, NONE, 0], [2, 0, NONE], 0)


@pytest.mark.parametrize("scanner", SCANNERS)
def test_rounding_does_not_break_nesting(scanner):
    rows = [(0, 100_000, 0), (10_000, 100_000 + TOLERANCE_NS, 0)]
    assert nested(rows, (), scanner) == ([NONE, 0], [], 0)


@pytest.mark.parametrize("scanner", SCANNERS)
def test_rows_that_cross(scanner):
    # a frame opens a range that outlives it; what follows lies in the range
    rows = [(0, 90_000, 0), (10_000, 30_000, 0), (20_000, 80_000, 0), (25_000, 28_000, 0)]
    assert nested(rows, [(26_000, 27_000, 0)], scanner) == ([NONE, 0, 0, 2], [3], 1)


def brute_parent(rows, row):
    """The row that started last of those that enclose the given one."""
    start, end, thread = rows[row]
    for other in range(row - 1, -1, -1):
        begins, ends, on = rows[other]
        if on == thread and begins <= start < ends and ends + TOLERANCE_NS >= end:
            return other
    return NONE


TIMES = st.integers(0, 40).map(lambda n: n * 5 * TOLERANCE_NS)
SPANS = st.tuples(TIMES, TIMES, st.integers(0, 1)).map(lambda s: (s[0], s[0] + s[1], s[2]))


@given(st.lists(SPANS, max_size=25), st.lists(SPANS, max_size=8))
def test_the_innermost_row_is_found(rows, calls):
    rows.sort(key=lambda r: (r[0], -r[1]))
    calls.sort(key=lambda r: (r[0], -r[1]))
    results = [nested(rows, calls, scanner) for scanner in SCANNERS]
    assert all(result == results[0] for result in results)
    parents, enclosing, _ = results[0]
    assert parents == [brute_parent(rows, row) for row in range(len(rows))]
    for call, found in zip(calls, enclosing, strict=True):
        before = [row for row in rows if row[0] <= call[0]]
        assert found == brute_parent([*before, call], len(before))
