import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.compute.underfilled_kernel import check

MS = 1_000_000


def kernels(*kernels):
    """One program of kernels: (blocks, duration)."""
    b = TraceBuilder()
    for i, (blocks, takes) in enumerate(kernels):
        more = {} if blocks is None else {"grid": f"[{blocks},1,1]", "block": "[1,1,1]"}
        b.launch(i * 100 * MS, 1000, "add", i * 100 * MS + 2000, takes, **more)
    return b.trace()


def test_one_block_leaves_the_device_empty():
    (found,) = check(kernels((1, 66 * MS)))
    assert "1 block of [1,1,1] threads on a device of 132 multiprocessors" in found.summary
    assert found.cost_ns_per_step == round(66 * MS * 131 / 132)
    assert found.changes[0].factor == pytest.approx(1 / 132)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param((132, 66 * MS), id="a block a multiprocessor"),
        pytest.param((16, 66 * MS), id="a library's reduction"),
        pytest.param((1, 50_000), id="a short kernel"),
    ],
)
def test_what_is_no_such_kernel(kernel):
    assert not list(check(kernels(kernel)))


def test_without_grids_it_is_not_checked():
    with pytest.raises(NotChecked):
        list(check(kernels((None, 66 * MS))))
