import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.difference import explained
from pinchpoint.trace import ApiKind

MS = 1_000_000
US = 1_000


def _steps(work, count=6):
    """Steps of 10 ms of which ``work(builder, at)`` fills the host and returns when it ends."""
    builder, at = TraceBuilder(), 0
    for step in range(count):
        begin, at = at, work(builder, at)
        builder.step(step, begin, at - begin)
    return builder.trace()


def _products(builder, at, *, ns=1000 * US, calls=8, grid="[64,1,1]"):
    """The host launches ahead; the device multiplies."""
    for number in range(calls):
        builder.op("aten::mm", at + number * 10 * US, 8 * US)
        builder.launch(
            at + number * 10 * US + US, 5 * US, "gemm", at + 20 * US + number * ns, ns, grid=grid
        )
    return at + 20 * US + calls * ns


def _reading(builder, at):
    """The same, and the host reads a value after each product."""
    for _ in range(8):
        end = _products(builder, at, calls=1)
        builder.op("aten::item", at + 15 * US, end - at)
        builder.op("aten::_local_scalar_dense", at + 16 * US, end - at - 2 * US)
        builder.api(
            "cudaStreamSynchronize", at + 17 * US, end - at - 4 * US, kind=ApiKind.SYNC_STREAM
        )
        at = end + 500 * US
    return at


def test_the_cause_is_named_as_diagnose_names_it():
    fast, slow = _steps(_products), _steps(_reading)
    found = explained(fast, slow)
    cause = found.causes[0]
    assert cause.id == "sync-in-loop"
    assert cause.rests_on == "finding"
    assert cause.a_saving_ns is None
    assert cause.change_ns == cause.b_saving_ns > 0
    assert [(f.id, f.change) for f in found.findings if f.id == "sync-in-loop"] == [
        ("sync-in-loop", "appeared")
    ]


def test_the_other_way_round_it_went():
    found = explained(_steps(_reading), _steps(_products))
    cause = found.causes[0]
    assert (cause.id, cause.b_saving_ns) == ("sync-in-loop", None)
    assert cause.change_ns == -cause.a_saving_ns


def test_what_both_have_explains_nothing():
    found = explained(_steps(_reading), _steps(_reading))
    assert "sync-in-loop" not in [c.id for c in found.causes]
    assert [f.change for f in found.findings if f.id == "sync-in-loop"] == ["stayed"]


@pytest.mark.parametrize("times", [2, 0.5])
def test_the_same_kernels_slower_throughout_are_a_slower_device(times):
    a, b = _steps(_products), _steps(lambda t, at: _products(t, at, ns=round(1000 * US * times)))
    found = explained(a, b)
    cause = found.causes[0]
    assert (cause.id, cause.rests_on) == ("device-slower", "contrast")
    assert "gpu-contention" in cause.possible
    assert cause.change_ns == round(8 * MS * (times - 1))
    assert f"in {'B' if times > 1 else 'A'}: its device was slower" in cause.summary


def test_more_blocks_are_more_work_and_no_slower_device():
    bigger = _steps(lambda t, at: _products(t, at, ns=2000 * US, grid="[128,1,1]"))
    found = explained(_steps(_products), bigger)
    assert "device-slower" not in [c.id for c in found.causes]
    assert found.rows[0].change_ns == 8 * MS


def test_pieces_of_both_profiles_are_subtracted():
    def computing(ns):
        def work(builder, at):
            builder.op("my::parse", at, ns)
            return _products(builder, at + ns, calls=2, ns=50 * US)

        return _steps(work)

    found = explained(computing(2 * MS), computing(5 * MS))
    piece = next(p for p in found.worth if p.name == "my::parse")
    assert piece.by == "operator"
    assert piece.a_ns == pytest.approx(2 * MS, rel=0.02)
    assert piece.b_ns == pytest.approx(5 * MS, rel=0.02)
    assert piece.change_ns == pytest.approx(3 * MS, rel=0.01)
    assert found.causes[0].change_ns == pytest.approx(3 * MS, rel=0.1)
