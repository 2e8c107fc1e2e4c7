"""What became worth more between two recordings; microseconds."""

import pytest

from pinchpoint.compare.profiles import compare_profiles
from program import Program


def loop(python_us, line=3):
    p = Program()
    for _ in p.steps(6):
        p.host(f"data.py({line}): prepare", python_us)
        with p.row("aten::mm"):
            p.kernel("gemm", 500)
        p.sync()
    return p.trace()


def test_a_function_that_got_slower_is_worth_more_though_its_line_moved():
    found = compare_profiles(loop(100), loop(900, line=40)).worth
    assert (found[0].by, found[0].name) == ("line", "prepare (data.py)")
    assert found[0].change_ns == pytest.approx(800_000, rel=0.03)


def test_nothing_changed():
    assert compare_profiles(loop(100), loop(100)).worth == ()
