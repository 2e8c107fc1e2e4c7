from dataclasses import replace

import pytest

from looked_at_runs import looked_at, thread
from pinchpoint.trace import HostKind, MemoryKind
from pinchpoint.trace.run_samples import Spent
from program import Program

SWITCH_US = 5_100  # the interpreter's switch interval, and a little to wake up
HELPER, SCALES = "helper.py(5): run", "helper.py(9): scale"


def beside(rival, *, stall_us=SWITCH_US, stalls=4, sent=None):
    """Steps in which some operators take ``stall_us``, beside a thread that is in ``rival``."""
    p, begins = Program(), []
    for _ in p.steps(6):
        begins.append(p.at)
        for _ in range(stalls):
            p.host("aten::add", stall_us, kind=HostKind.OPERATOR)
            p.kernel("elementwise", 100)
        if sent:
            with p.row("aten::copy_", dtypes=[sent, sent], shapes=[[1 << 20], [1 << 20]]):
                p.copy(4 << 20, 100, MemoryKind.PINNED, MemoryKind.DEVICE)
    if rival:
        thread = p.builder.thread("helper")
        with_frame = p.builder.python
        with_frame(HELPER, 0, p.at, thread=thread)
        for begin in begins if sent else ():
            with_frame(SCALES, begin, 1_000_000, thread=thread)
        if rival != HELPER:
            with_frame(rival, 1, p.at - 2, thread=thread)
    return p.trace()


def test_names_the_thread_and_adds_up_the_stalls(outcome):
    (finding,) = outcome("gil-contention", beside(HELPER)).findings
    assert "while thread helper runs Python" in finding.summary
    assert finding.evidence[0].value == 4
    assert finding.cost_ns_per_step == pytest.approx(4 * SWITCH_US * 1e3, rel=0.01)
    assert finding.evidence[2].name == "aten::add"


def test_without_the_rival_the_device_decides(predicted):
    assert predicted(beside(HELPER), "gil-contention") == pytest.approx(4 * 100e3, rel=0.2)


@pytest.mark.parametrize(
    "trace",
    [
        beside(None),
        beside("<built-in method acquire of _thread.lock object at 0x7f>"),
        beside(HELPER, stall_us=7_600),
        beside(HELPER, stall_us=40, stalls=20),
    ],
    ids=["no rival", "a thread that waits", "slow work of its own", "many launches"],
)
def test_other_slow_hosts_are_not_meant(outcome, trace):
    assert outcome("gil-contention", trace).answer == "clear"


def test_between_stalls_operators_are_slow_as_well(predicted):
    """Twenty operators of 200 µs beside four stalls: undisturbed they take some 10 µs each."""
    p = Program()
    for _ in p.steps(6):
        for i in range(24):
            stalled = SWITCH_US if i % 6 == 0 else 0
            with p.row("aten::add"):
                p.busy(200 + stalled)
                p.kernel("elementwise", 2)
    thread = p.builder.thread("helper")
    p.builder.python(HELPER, 0, p.at, thread=thread)
    assert predicted(p.trace(), "gil-contention") < 24 * 20e3


def test_far_from_a_stall_operators_cost_what_they_cost(predicted):
    """A hundred operators of 200 µs behind one stall of ten switch intervals: nothing disturbs
    those that come more than a millisecond after it."""
    p = Program()
    for _ in p.steps(6):
        for i in range(100):
            with p.row("aten::add"):
                p.busy(200 + (0 if i else 10 * SWITCH_US))
                p.kernel("elementwise", 2)
    thread = p.builder.thread("helper")
    p.builder.python(HELPER, 0, p.at, thread=thread)
    after = predicted(p.trace(), "gil-contention")
    assert 90 * 200e3 < after < 100 * 205e3


def test_without_stacks_the_stalls_themselves_tell(outcome):
    p = Program()
    for i in range(6):
        begin = p.at
        for _ in range(4):
            p.host("aten::add", SWITCH_US, kind=HostKind.OPERATOR)
            p.kernel("elementwise", 100)
        p.builder.step(i, begin, p.at - begin)
    (finding,) = outcome("gil-contention", p.trace()).findings
    assert "as if another thread held the interpreter's lock" in finding.summary
    assert finding.confidence == "medium"


def test_operators_that_compute_on_the_cpu_take_that_long_by_themselves(outcome):
    p = Program()
    for i in range(6):
        begin = p.at
        for _ in range(4):
            p.host("aten::mm", SWITCH_US, kind=HostKind.OPERATOR)
        p.builder.step(i, begin, p.at - begin)
    p.builder.devices = []
    assert outcome("gil-contention", p.trace()).answer == "clear"


@pytest.mark.parametrize(
    ("sent", "doing", "said"),
    [
        ("float", "part.astype()", True),
        ("unsigned char", "part.astype()", False),
        ("float", "json.loads()", False),
    ],
)
def test_threads_that_make_floats_of_what_is_sent_may_leave_that_to_the_device(
    outcome, sent, doing, said
):
    at = [Spent((SCALES, HELPER), one, 20, 400_000, 400_000, 0) for one in (doing, "/")]
    idle = Spent(("train.py(40): step",), "", 40, 800_000, 0, 0)
    run = looked_at(thread(idle), thread(*at, main=False, name="helper")).run
    trace = replace(beside(HELPER, sent=sent), run=run)
    (finding,) = outcome("gil-contention", trace).findings
    assert finding.fix.startswith("Send what the threads read in its own narrow type") == said
    bytes_sent = [e.value for e in finding.evidence if e.what == "floats copied to the device"]
    assert bytes_sent == ([4 << 20] if said else [])


def test_one_stall_in_a_window_does_not_tell_how_often_they_come(outcome):
    """A single stall of three quarters of the time: its share is known within a half."""
    p = Program()
    for number in p.steps(4):
        for _ in range(4):
            p.host("aten::add", 4_000 if number == 2 else 200, kind=HostKind.OPERATOR)
            p.kernel("elementwise", 100)
        if number == 2:
            p.host("aten::add", 6 * SWITCH_US, kind=HostKind.OPERATOR)
    p.builder.python(HELPER, 0, p.at, thread=p.builder.thread("helper"))
    (finding,) = outcome("gil-contention", p.trace()).findings
    least_ns, most_ns = finding.saving_ns_per_step
    assert finding.confidence == "medium"
    assert most_ns == pytest.approx(finding.cost_ns_per_step, rel=0.01)
    assert 0.3 < least_ns / most_ns < 0.7
