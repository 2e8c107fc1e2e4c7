"""Memory events of profiler traces in the form of an allocator's history."""

from builders import TraceBuilder
from pinchpoint.analysis.memory.growth import growth
from pinchpoint.analysis.memory.history import histories
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase
from pinchpoint.report.assemble.memory import memory_report

MIB = 1 << 20
BASE = 100 * MIB


class Recorded:
    """A trace with memory events: forward, backward, optimizer in each step."""

    def __init__(self) -> None:
        self.b = TraceBuilder()
        self.autograd = self.b.thread("pt_autograd_0")
        self.now, self.total, self.next = 0, BASE, 1

    def memory(self, size: int, address: int, *, thread: int = 0, device: int | None = 0) -> None:
        self.now += 10
        self.total += size
        self.b.add(
            "allocations",
            time_ns=self.now * 1000,
            address=address,
            bytes=size,
            device=device,
            allocated_bytes=self.total,
            reserved_bytes=2 * BASE,
            thread=thread,
        )

    def within(self, name: str, body, *, thread: int = 0, python: bool = False) -> None:
        start = self.now + 1
        self.now += 2
        body()
        self.now += 2
        add = self.b.python if python else self.b.op
        add(name, start * 1000, (self.now - start) * 1000, thread=thread)

    def step(self, number: int, *, keep: bool = False) -> None:
        first = self.now + 1
        activation, gradient, self.next = self.next, self.next + 1, self.next + 2

        def forward() -> None:
            self.within("aten::linear", lambda: self.memory(8 * MIB, activation))

        def call() -> None:
            name = "torch/nn/modules/module.py(1790): _call_impl"
            self.within(name, forward, python=True)

        self.within("train.py(10): main", call, python=True)
        node = "autograd::engine::evaluate_function: AddmmBackward0"

        def backward() -> None:
            self.memory(4 * MIB, gradient, thread=self.autograd)
            if not keep:
                self.memory(-8 * MIB, activation, thread=self.autograd)

        self.within(node, backward, thread=self.autograd)
        zero = "Optimizer.zero_grad#SGD.zero_grad"
        start = self.now + 1
        self.now += 2
        self.memory(-4 * MIB, gradient)
        self.now += 2
        self.b.annotation(zero, start * 1000, (self.now - start) * 1000)
        self.b.step(number, first * 1000, (self.now + 1 - first) * 1000)


def test_a_step_in_phases_with_owners():
    r = Recorded()
    for number in range(2):
        r.step(number)
    (history,) = histories(r.b.trace(origin_ns=0))
    phases = [run.phase for run in history.phases.runs if run.phase != Phase.OUTSIDE]
    assert phases == 2 * [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]
    held = history.bytes_of(history.peak_event)
    assert held[MemoryCategory.ACTIVATION] == 8 * MIB
    assert held[MemoryCategory.GRADIENT] == 4 * MIB
    assert held[MemoryCategory.UNKNOWN] == BASE
    assert history.replay.peak("requested").bytes == BASE + 12 * MIB
    assert history.replay.peak("reserved").bytes == 2 * BASE
    assert len(history.steps) == 2


def test_growth_is_found_in_a_trace_too():
    r = Recorded()
    for number in range(6):
        r.step(number, keep=True)
    found = growth(histories(r.b.trace(origin_ns=0))[0])
    assert [(leak.kind, leak.bytes_per_step) for leak in found.leaks] == [("graph", 8 * MIB)]


def test_events_without_addresses_cannot_be_paired():
    r = Recorded()
    r.memory(MIB, 0)
    assert histories(r.b.trace(origin_ns=0)) == ()


def test_host_memory_has_a_history_only_if_it_is_worth_one():
    r = Recorded()
    r.total = 0
    r.memory(MIB, 1, device=None)
    assert histories(r.b.trace(origin_ns=0)) == ()
    r = Recorded()
    r.memory(100 * MIB, 2, device=None)
    (host,) = histories(r.b.trace(origin_ns=0))
    assert host.device == -1


def test_what_the_host_held_before_is_unknown_and_no_batch_is_promised():
    """A profiler's totals of the host begin with the recording: parameters are not in them."""
    r = Recorded()
    r.total = 0

    def forward() -> None:
        r.within("aten::linear", lambda: r.memory(100 * MIB, 1, device=None))

    r.within("train.py(10): main", forward, python=True)
    r.memory(-100 * MIB, 1, device=None)
    (host,) = memory_report(r.b.trace(origin_ns=0)).devices
    assert host.peaks["requested"].bytes == 100 * MIB
    assert host.beginning == "unknown"
    assert any("before the recording" in doubt for doubt in host.doubts)
    assert host.batch is None
