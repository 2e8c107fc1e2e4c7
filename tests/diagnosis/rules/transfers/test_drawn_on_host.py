import pytest

from pinchpoint.trace import MemoryKind
from program import Program

SHAPE, MANY = [8, 16, 100, 100], 8 * 16 * 100 * 100
DRAW_US, COPY_US, WORK_US = 5_000, 700, 2_000


def sampling(*, between=(), copied=SHAPE, size=4 * MANY, shapes=True, on_device=False, source=None):
    """Each step draws noise, copies it to the device, and computes 2 ms there."""
    p = Program()

    def given(*some):
        return {"shapes": list(some), "dtypes": ["float"] * len(some)} if shapes else {}

    for _ in p.steps(6):
        with p.frame("sample.py(12): draw"):
            with p.row("aten::randn"), p.row("aten::normal_", **given(SHAPE)):
                if on_device:
                    p.kernel("distribution", 20)
                else:
                    p.busy(DRAW_US)
            for name, some in between:
                with p.row(name, **given(*some)):
                    p.busy(5)
            with p.row("aten::to", **given(copied)):
                p.copy(size, COPY_US, source or MemoryKind.PAGEABLE, MemoryKind.DEVICE, waits=True)
        p.kernel("work", WORK_US)
    return p.trace()


def test_what_is_drawn_on_the_cpu_for_the_device_is_drawn_there(outcome, predicted):
    (found,) = outcome("drawn-on-host", sampling()).findings
    assert found.summary.startswith(
        "5.12 MB a step of random numbers are drawn on the CPU in draw (sample.py:12), which takes"
        " it 5.0"
    )
    assert found.location.function == "draw"
    # The work of a step is what is left of 7.7 ms.
    assert predicted(sampling(), "drawn-on-host") == pytest.approx(WORK_US * 1e3, rel=0.1)


VIEWS = [("aten::view", [SHAPE]), ("aten::mul", [SHAPE, []]), ("aten::unsqueeze", [SHAPE])]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(sampling(between=VIEWS), id="views and factors between"),
        pytest.param(sampling(size=2 * MANY), id="cast before it is copied"),
        pytest.param(sampling(source=MemoryKind.PINNED), id="pinned"),
    ],
)
def test_it_is_the_same_after_views_and_casts(outcome, trace):
    assert len(outcome("drawn-on-host", trace).findings) == 1


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(sampling(between=[("aten::add", [SHAPE, SHAPE])]), id="added to a batch"),
        pytest.param(
            sampling(copied=[8, 3, 64, 64], size=4 * 8 * 3 * 64 * 64), id="another tensor"
        ),
        pytest.param(sampling(size=4 * MANY // 10), id="a part of it"),
        pytest.param(sampling(on_device=True), id="drawn on the device"),
    ],
)
def test_what_is_copied_otherwise_is_no_draw(outcome, trace):
    assert outcome("drawn-on-host", trace).answer == "clear"


def test_without_shapes_it_is_not_checked(outcome):
    answer = outcome("drawn-on-host", sampling(shapes=False))
    assert (answer.answer, answer.why) == ("not checked", "shapes were not recorded")
