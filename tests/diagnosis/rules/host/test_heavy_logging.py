import pytest

from pinchpoint.trace import MemoryKind
from program import Program

WRITE = "torch/utils/tensorboard/writer.py(357): add_scalar"
DRAW = "numpy/core/fromnumeric.py(1): clip"


def logging(writes_us, numpy_us, *, writer=WRITE):
    """A kernel of 2 ms, and a function of the program that prepares on the host and writes."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 2_000)
        with p.frame("train.py(80): log"):
            if numpy_us:
                p.host(DRAW, numpy_us)
            if writes_us:
                p.host(writer, writes_us)
    return p.trace()


def test_counts_what_the_function_does_to_write(outcome):
    (finding,) = outcome("heavy-logging", logging(4_000, 1_000)).findings
    assert finding.cost_ns_per_step == pytest.approx(5e6, rel=0.001)
    assert (finding.location.function, finding.location.line) == ("log", 80)


def test_without_it_the_device_decides(predicted):
    assert predicted(logging(4_000, 1_000), "heavy-logging") == pytest.approx(2e6, rel=0.05)


def test_a_line_written_in_a_function_that_computes_is_a_line(outcome):
    (finding,) = outcome("heavy-logging", logging(100, 5_000)).findings
    assert finding.cost_ns_per_step == pytest.approx(0.1e6, rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [
        logging(0, 5_000),
        logging(5_000, 0, writer="torch/serialization.py(967): save"),
        logging(5_000, 0, writer="logging/__init__.py(1720): getEffectiveLevel"),
    ],
    ids=["a metric", "a save", "a question for the level"],
)
def test_other_host_work_is_no_logging(outcome, trace):
    assert outcome("heavy-logging", trace).answer == "clear"


def histogram(writer="<built-in method write of _io.TextIOWrapper object at 0x7f>"):
    """A kernel of 2 ms, and a function that copies weights, counts them and writes one line."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 2_000)
        with p.frame("train.py(80): histogram"):
            with p.row("aten::_to_copy"):
                p.copy(1 << 20, 100, MemoryKind.DEVICE, MemoryKind.PAGEABLE, waits=True)
            p.host("numpy/lib/_histograms_impl.py(685): histogram", 5_000)
            p.host(writer, 20)
    return p.trace()


def test_what_is_counted_on_the_host_to_be_written_is_logging(ranked, predicted):
    assert ranked(histogram()) == ["heavy-logging"]
    assert predicted(histogram(), "heavy-logging") == pytest.approx(2e6, rel=0.05)


def test_a_batch_that_goes_to_the_device_is_no_copy_of_a_log(outcome):
    p = Program()
    for _ in p.steps(6):
        with p.row("aten::copy_"):
            p.copy(1 << 20, 5_000, MemoryKind.PAGEABLE, MemoryKind.DEVICE, waits=True)
        p.kernel("work", 2_000)
        p.host("<built-in method write of _io.TextIOWrapper object at 0x7f>", 300)
    (finding,) = outcome("heavy-logging", p.trace()).findings
    assert finding.cost_ns_per_step == pytest.approx(0.3e6, rel=0.01)


def test_what_is_only_printed_is_a_metric(ranked):
    assert ranked(histogram("<built-in function print>"))[0] == "metric-on-cpu"


def test_a_thread_that_writes_for_the_steps_is_the_remedy(outcome):
    p = Program()
    writer = p.builder.thread("writer")
    for _ in p.steps(6):
        p.kernel("work", 2_000)
        p.thread = writer
        p.host("<built-in method write of _io.TextIOWrapper object at 0x7f00>", 4_000)
        p.thread = 0
        p.sync()
    assert outcome("heavy-logging", p.trace()).answer == "clear"
