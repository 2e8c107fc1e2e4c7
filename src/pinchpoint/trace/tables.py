"""The data dictionary: every table, every column, its unit and its meaning.

Times are integer nanoseconds since ``Trace.origin_ns``. A column is null only where it says
``nullable``; a null is recorded in a mask, never as 0, -1 or NaN. Rows are sorted by ``start_ns``
(``time_ns``); ties keep the outer interval first. The position of a row is its id.
"""

from pinchpoint.frozen import dataclass


@dataclass(frozen=True)
class Column:
    """One column: numpy type, meaning, unit, and whether it may be null.

    ``names`` columns hold positions in ``Trace.names``; ``thread`` columns positions in
    ``Trace.threads``; ``row:TABLE`` columns positions in another table.
    """

    dtype: str
    meaning: str
    unit: str = ""
    nullable: bool = False
    refers_to: str = ""


def _time(meaning: str) -> Column:
    return Column("int64", meaning, unit="ns")


def _name(meaning: str, *, nullable: bool = False) -> Column:
    return Column("int32", meaning, nullable=nullable, refers_to="names")


def _row(target: str, meaning: str) -> Column:
    return Column("int32", meaning, nullable=True, refers_to=f"row:{target}")


def _number(meaning: str, unit: str = "", dtype: str = "int64") -> Column:
    return Column(dtype, meaning, unit=unit, nullable=True)


_THREAD = Column("int32", "the host thread", refers_to="threads")
_RANK = Column("int32", "the rank of the process in a distributed job", nullable=True)

TABLES: dict[str, dict[str, Column]] = {
    "host_ops": {
        "start_ns": _time("start"),
        "duration_ns": _time("wall time, children included"),
        "name": _name("the operator, function, module or annotation"),
        "kind": Column("uint8", "HostKind"),
        "thread": _THREAD,
        "rank": _RANK,
        "parent": _row("host_ops", "the innermost row that encloses this one on its thread"),
        "external_id": _number("joins with api_calls and device_ops of the same operator"),
        "sequence": _number("autograd sequence number, shared by forward and backward"),
        "shapes": _name("shapes of the inputs as JSON text", nullable=True),
        "dtypes": _name("types of the inputs as JSON text", nullable=True),
        "strides": _name("strides of the inputs as JSON text", nullable=True),
        "values": _name("scalar inputs as JSON text", nullable=True),
        "event": _number("position of the event in the file, for reading its other arguments"),
    },
    "api_calls": {
        "start_ns": _time("start"),
        "duration_ns": _time("wall time on the host"),
        "name": _name("the call, without version suffix"),
        "kind": Column("uint8", "ApiKind"),
        "thread": _THREAD,
        "rank": _RANK,
        "correlation": _number("joins with the device operations that the call started"),
        "external_id": _number("the operator that was current"),
        "host_op": _row("host_ops", "the innermost row that encloses the call on its thread"),
        "event": _number("position of the event in the file"),
    },
    "device_ops": {
        "start_ns": _time("start on the device"),
        "duration_ns": _time("time on the device"),
        "name": _name("the kernel or copy"),
        "kind": Column("uint8", "DeviceKind"),
        "device": Column("int32", "device number"),
        "stream": _number("stream number"),
        "rank": _RANK,
        "correlation": _number("joins with the call that started it"),
        "external_id": _number("the operator that was current at the launch"),
        "api_call": _row("api_calls", "the call that started it"),
        "host_op": _row("host_ops", "the innermost operator that launched it"),
        "graph_node": _number("node inside the launched graph"),
        "bytes": _number("bytes moved or set; null for kernels", "bytes"),
        "from_memory": Column("uint8", "MemoryKind of the source of a copy", nullable=True),
        "to_memory": Column("uint8", "MemoryKind of the target of a copy", nullable=True),
        "grid": _name("blocks in x, y, z as JSON text", nullable=True),
        "block": _name("threads a block in x, y, z as JSON text", nullable=True),
        "registers": _number("registers a thread", dtype="int32"),
        "shared_bytes": _number("shared memory a block", "bytes", dtype="int32"),
        "occupancy_percent": _number("estimated occupancy, as the file gives it", "%", "float32"),
        "collective": _name("the collective's kind (allreduce, …)", nullable=True),
        "collective_args": _name("the other collective arguments as JSON text", nullable=True),
        "event": _number("position of the event in the file"),
    },
    "device_annotations": {
        "start_ns": _time("start of the first device operation inside the annotation"),
        "duration_ns": _time("to the end of the last one"),
        "name": _name("the annotation"),
        "device": Column("int32", "device number"),
        "stream": _number("stream number"),
        "rank": _RANK,
        "external_id": _number("the annotation on the host"),
    },
    "compiled_ops": {
        "start_ns": _time("start"),
        "duration_ns": _time("time; of nested operations, what is inside counts twice"),
        "op": _name("the operation of the compiled program, as XLA names it"),
        "module": _name("the compiled program", nullable=True),
        "category": _name("its kind, as the recording says", nullable=True),
        "source": _name("the framework's operation that it was compiled from", nullable=True),
        "device": _number("device number; null for an operation on the host", dtype="int32"),
        "flops": _number("floating-point operations, as the compiler counts them", "flop"),
        "bytes": _number("bytes read and written, as the compiler counts them", "bytes"),
        "widened_at": _name("where numbers that it computes with became wider", nullable=True),
        "widened_to": _name("the type that they became, such as f32", nullable=True),
        "spared_bytes": _number("bytes fewer, if they had stayed as narrow as they were", "bytes"),
        "read_ratio": Column(
            "float64", "of its work that the part of its result needs which is read", "", True
        ),
        "read_at": _name("where that part is taken, if it is a small one", nullable=True),
        "read_of": _name("results, permutation (by random keys) or sort", nullable=True),
        "way": _name(
            "what it comes to: rows or sums by class numbers, a diagonal, order (of it and another"
            " product), jacobian (of which products are used), trace (of one); on a CPU depthwise,"
            " long (convolutions) or systems (small ones)",
            nullable=True,
        ),
        "way_at": _name("the line that shows that, where it is another one", nullable=True),
        "way_ratio": Column("float64", "of its FLOPs what is left if it is written so", "", True),
        "way_bytes": _number("read and written if it is written so", "bytes"),
        "chosen_at": _name(
            "the condition row by row of which only one side reads it", nullable=True
        ),
        "chosen_side": Column("uint8", "1: read where it holds, 2: where it does not", "", True),
        "rewritten_at": _name(
            "the loop that writes its result anew, nearly unchanged", nullable=True
        ),
        "put_back_bytes": _number("slices of an array that it writes back into it", "bytes"),
        "changed_ratio": Column(
            "float64", "of that work what is needed: the share that changes", "", True
        ),
        "carried_ratio": Column(
            "float64", "what stays of it if the loop carries one array, changed in place", "", True
        ),
        "argument": _name("the argument of the program that it is a copy of", nullable=True),
        "donated": Column("bool", "whether that argument was given to be changed", "", True),
        "loop": _name("where the innermost loop that it is in is written", nullable=True),
        "iterations": _number("how often that loop runs, where the compiler knows it"),
        "pulled_back": Column(
            "bool", "whether it is of a pass back that vmap repeats, as jacrev does", "", True
        ),
        "fft_length": _number("points of a Fourier transform along its longest dimension"),
        "rests_on": _name(
            "the arguments that it rests on alone, as JSON, if no program of the recording gives"
            " arrays like these",
            nullable=True,
        ),
        "double": Column("bool", "whether it takes or gives an array of float64", "", True),
    },
    "flows": {
        "start_ns": _time("where the edge begins"),
        "end_ns": _time("where the edge ends"),
        "kind": Column("uint8", "FlowKind"),
        "from_thread": Column("int32", "host thread of the beginning", "", True, "threads"),
        "to_thread": Column("int32", "host thread of the end", "", True, "threads"),
        "from_correlation": _number("correlation of the record or launch at the beginning"),
        "to_stream": _number("the stream that waits"),
        "device": _number("device number", dtype="int32"),
    },
    "steps": {
        "start_ns": _time("start of the marker on the host"),
        "duration_ns": _time("length of the marker on the host"),
        "name": _name("the marker as written"),
        "number": _number("the number in the marker"),
        "thread": _THREAD,
        "rank": _RANK,
    },
    "counters": {
        "time_ns": _time("when"),
        "name": _name("what was sampled, with its unit"),
        "value": Column("float64", "the sample"),
        "device": _number("device number", dtype="int32"),
        "rank": _RANK,
    },
    "kernel_counters": {
        "launch": Column("int64", "order of the profiled launch in its file"),
        "name": _name("the kernel"),
        "metric": _name("the hardware metric's own name"),
        "unit": _name("the metric's unit as written", nullable=True),
        "value": Column("float64", "the value in that unit"),
        "device": _number("device number", dtype="int32"),
    },
    "allocations": {
        "time_ns": _time("when"),
        "address": Column("uint64", "address of the block", nullable=True),
        "bytes": Column("int64", "positive: allocated; negative: freed", unit="bytes"),
        "device": _number("device number; null for host memory", dtype="int32"),
        "allocated_bytes": _number("allocated in total after the event", "bytes"),
        "reserved_bytes": _number("reserved in total after the event", "bytes"),
        "thread": _THREAD,
        "rank": _RANK,
    },
    "allocator_events": {
        "device": Column("int32", "device number"),
        "action": Column("uint8", "AllocatorAction"),
        "address": Column("uint64", "address of the block or segment; null at an OOM", "", True),
        "bytes": Column("int64", "requested bytes; of segments, bytes of the driver", unit="bytes"),
        "stream": Column("uint64", "handle of the stream"),
        "time_us": _number("Unix time", "us"),
        "stack": Column("int32", "position in Stacks; null where no stack was recorded", "", True),
        "pool": _name("id of the private pool", nullable=True),
        "note": _name("metadata that the program attached", nullable=True),
        "free_bytes": _number("free on the device when the request failed", "bytes"),
    },
    "allocator_segments": {
        "device": Column("int32", "device number"),
        "address": Column("uint64", "address"),
        "bytes": Column("int64", "size", unit="bytes"),
        "stream": Column("uint64", "handle of the stream"),
        "small": Column("bool", "whether it serves the pool of small blocks"),
        "expandable": Column("bool", "whether it is a mapped range of an expandable segment"),
        "pool": _name("id of the private pool; null for the ordinary one", nullable=True),
        "first_block": Column("int32", "position of its first block in allocator_blocks"),
        "blocks": Column("int32", "number of its blocks"),
    },
    "allocator_blocks": {
        "segment": Column("int32", "position in allocator_segments"),
        "address": Column("uint64", "address"),
        "bytes": Column("int64", "size", unit="bytes"),
        "requested_bytes": _number("what the program asked for", "bytes"),
        "state": Column("uint8", "BlockState"),
        "stack": Column("int32", "position in Stacks; null where none was recorded", "", True),
    },
    "health": {
        "fact": _name("what was seen, one of the ids in importers/health.py"),
        "severity": Column("uint8", "Severity"),
        "count": Column("int64", "how many events show it"),
        "detail": _name("one sentence for a person"),
        "time_ns": _number("where it was first seen", "ns"),
    },
}
