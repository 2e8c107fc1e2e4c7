"""Plays a hand-written program on a small allocator, so that a test knows the answer beforehand."""

from typing import Any

from pinchpoint.importers.memory_snapshot import allocations_of
from pinchpoint.importers.memory_snapshot.assemble import assemble
from pinchpoint.importers.memory_snapshot.collect import Collector
from pinchpoint.importers.memory_snapshot.pickle_state import Rows
from pinchpoint.trace import Device, MemorySnapshot, Source, Thread, Trace

MIB = 1 << 20
START = 0x7F0000000000
NN = "/venv/lib/python3.12/site-packages/torch/nn/modules/"
TORCH = "/venv/lib/python3.12/site-packages/torch/"

Frame = tuple[str, int, str]
MAIN: list[Frame] = [("/home/user/train.py", 100, "main"), ("/home/user/train.py", 200, "<module>")]
CALL: list[Frame] = [(NN + "module.py", 1790, "_call_impl")]
MOVE: list[Frame] = [
    (NN + "module.py", 1370, "convert"),
    (NN + "module.py", 965, "_apply"),
    (NN + "module.py", 1384, "to"),
    *MAIN,
]
MOVE_BUFFER = [MOVE[0], (NN + "module.py", 1035, "_apply"), *MOVE[2:]]
BACKWARD: list[Frame] = []
STATE: list[Frame] = [
    (TORCH + "optim/adam.py", 178, "_init_group"),
    (TORCH + "optim/adam.py", 238, "step"),
    (TORCH + "optim/optimizer.py", 533, "wrapper"),
    *MAIN,
]
STEP: list[Frame] = [(TORCH + "optim/adam.py", 791, "_multi_tensor_adam"), *STATE[1:]]
ZERO: list[Frame] = [(TORCH + "optim/optimizer.py", 1066, "zero_grad"), *MAIN]


def forward(line: int, *, caller: int = 100, layer: str = "linear.py") -> list[Frame]:
    """A module's forward at a line of the model, called from a line of the training loop."""
    return [
        (NN + layer, 134, "forward"),
        *CALL,
        ("/home/user/model.py", line, "forward"),
        *CALL,
        ("/home/user/train.py", caller, "main"),
        MAIN[-1],
    ]


def user(line: int) -> list[Frame]:
    """A line of the training loop itself."""
    return [("/home/user/train.py", line, "main"), MAIN[-1]]


class Program:
    """Allocates, frees, and in the end gives a trace. Times rise by 1 µs an event."""

    def __init__(self, segment_bytes: int = 1 << 34) -> None:
        self.events: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        self.live: dict[int, tuple[int, list[Frame] | None]] = {}
        self.settings: dict[str, Any] = {}
        self.segment_bytes = segment_bytes
        self.free = [(START, START + segment_bytes)]
        self._event("segment_alloc", START, segment_bytes, MAIN)

    def _event(self, action: str, addr: int | None, size: int, stack: Any, **more: Any) -> None:
        event = {"action": action, "size": size, "stream": 0, "time_us": len(self.events), **more}
        if addr is not None:
            event["addr"] = addr
        if stack is not None:
            event["frames"] = stack
        self.events.append(event)

    def alloc(self, size: int, stack: list[Frame] | None) -> int:
        rounded = -(-size // 512) * 512
        at = next(i for i, (a, b) in enumerate(self.free) if b - a >= rounded)
        start, end = self.free.pop(at)
        if end - start - rounded > MIB:
            self.free.insert(at, (start + rounded, end))
        else:
            rounded = end - start
        self.live[start] = (rounded, stack)
        self._event("alloc", start, size, stack)
        self._sizes = getattr(self, "_sizes", {}) | {start: size}
        return start

    def drop(self, address: int, stack: list[Frame] | None, *, later: bool = False) -> None:
        self._event("free_requested", address, self._sizes[address], stack)
        if not later:
            self.complete(address, stack)

    def complete(self, address: int, stack: list[Frame] | None) -> None:
        size, _ = self.live.pop(address)
        self._event("free_completed", address, self._sizes[address], stack)
        ranges = sorted([*self.free, (address, address + size)])
        self.free = [ranges[0]]
        for start, end in ranges[1:]:
            if start == self.free[-1][1]:
                self.free[-1] = (self.free[-1][0], end)
            else:
                self.free.append((start, end))

    def oom(self, size: int, free: int) -> None:
        self._event("oom", None, size, MAIN, device_free=free)

    def mark(self, name: str, *, begins: bool) -> None:
        self.marks.append(
            {
                "name": name,
                "stage": "START" if begins else "END",
                "device": 0,
                "time_us": len(self.events),
            }
        )

    def step(self, number: int) -> "_Step":
        return _Step(self, number)

    def trace(self, *, memory_bytes: int | None = None) -> Trace:
        """The recording; the segment is there with all its blocks."""
        rows = Collector("program")
        blocks = [(a, s, True, st) for a, (s, st) in self.live.items()]
        blocks += [(a, b - a, False, None) for a, b in self.free]
        parts = [_block(rows, *one) for one in sorted(blocks)]
        inside = Rows("block", parts[0].start, parts[-1].end)
        rows.finished_dict(
            {
                "device": 0,
                "address": START,
                "total_size": self.segment_bytes,
                "stream": 0,
                "segment_type": "large",
                "blocks": [inside],
            }
        )
        for event in self.events:
            frames = event.pop("frames", None)
            rows.finished_dict(event | ({} if frames is None else {"frames": _stack(rows, frames)}))
        root = {
            "segments": [],
            "device_traces": [[Rows("event", 0, len(self.events))]],
            "allocator_settings": self.settings,
            "external_annotations": self.marks,
        }
        snapshot = assemble(root, rows, complete=True, name="program")
        return _trace(snapshot, rows, memory_bytes)


class _Step:
    def __init__(self, program: Program, number: int) -> None:
        self.program, self.name = program, f"ProfilerStep#{number}"

    def __enter__(self) -> None:
        self.program.mark(self.name, begins=True)

    def __exit__(self, *_: object) -> None:
        self.program.mark(self.name, begins=False)


def _block(rows: Collector, address: int, size: int, live: bool, stack: Any) -> Rows:
    content = {
        "address": address,
        "size": size,
        "requested_size": size,
        "state": "active_allocated" if live else "inactive",
    }
    if stack is not None:
        content["frames"] = _stack(rows, stack)
    made = rows.finished_dict(content)
    assert isinstance(made, Rows)
    return made


def _stack(rows: Collector, frames: list[Frame]) -> Any:
    names = ("filename", "line", "name")
    refs = [rows.finished_dict(dict(zip(names, f, strict=True))) for f in frames]
    return rows.finished_list(refs)


def _trace(snapshot: MemorySnapshot, rows: Collector, memory_bytes: int | None) -> Trace:
    return Trace(
        source=Source("program", "test"),
        names=rows.names.freeze(),
        threads=(Thread("?", "?"),),
        devices=(Device(0, memory_bytes=memory_bytes),),
        allocations=allocations_of(snapshot, 0),
        snapshot=snapshot,
    )
