"""What is taken from each event: its lane, and the columns of that lane.

A *lane* groups events that fill the same tables. Both scanners, the native one (``_scan.pyx``)
and the plain one (``plain.py``), read their keys, columns and lanes from here, so that they can
only agree.
"""

from enum import IntEnum

NULL = -(2**63)  # an absent number in a column of a scan; tables use masks
ABSENT = -1  # an absent text in an interned column


class Lane(IntEnum):
    """Where an event goes."""

    HOST = 0  # operators, Python functions, annotations, overhead
    API = 1  # runtime and driver calls
    DEVICE = 2  # kernels, copies, memsets, annotations as seen on the device
    SYNC = 3  # synchronisation intervals as the device sees them
    FLOW = 4  # one end of an arrow
    MEMORY = 5  # one allocation or release
    PAIR = 6  # the begin or the end of an event of the lanes 0 to 3
    COUNTER = 7  # a sample of a counter
    RAW = 8  # rare events, kept as text
    IGNORED = 9  # arrows from launches to kernels, where the correlation says the same; marks
    UNTIMED = 10  # lacks a time that its phase needs
    UNREAD = 11  # a phase that no recorder of device work writes


class Form(IntEnum):
    """How the text of a value becomes a number in a column."""

    INTEGER = 0  # a number, or a number in quotes
    NANOSECONDS = 1  # microseconds with any number of decimals
    THOUSANDTHS = 2  # a number, times 1000
    TEXT = 3  # what stands between the quotes, interned
    TOKEN = 4  # the same, or the number as it is written, interned
    JSON = 5  # the value as it is written, interned
    PHASE = 6  # the one character between the quotes
    ADDRESS = 7  # an unsigned number, kept as the signed one with the same bits
    LINK = 8  # up to 18 digits, in quotes or not; anything else is absent


class Key:
    """One key of an event, or of its ``args``."""

    def __init__(self, text: str, column: str, form: Form) -> None:
        self.text = text
        self.column = column
        self.form = form


EVENT_KEYS = (
    Key("ph", "phase", Form.PHASE),
    Key("cat", "category", Form.TEXT),
    Key("name", "name", Form.TEXT),
    Key("pid", "process", Form.TOKEN),
    Key("tid", "thread", Form.TOKEN),
    Key("ts", "start", Form.NANOSECONDS),
    Key("dur", "duration", Form.NANOSECONDS),
    Key("id", "flow", Form.INTEGER),
)

ARGUMENT_KEYS = (
    Key("External id", "external", Form.INTEGER),
    Key("external id", "external_2021", Form.INTEGER),
    Key("correlation", "correlation", Form.INTEGER),
    Key("Sequence number", "sequence", Form.INTEGER),
    Key("Input Dims", "shapes", Form.JSON),
    Key("Input dims", "shapes_2021", Form.JSON),
    Key("Input type", "dtypes", Form.JSON),
    Key("Input Strides", "strides", Form.JSON),
    Key("Concrete Inputs", "values", Form.JSON),
    Key("stream", "stream", Form.INTEGER),
    Key("device", "device", Form.INTEGER),
    Key("bytes", "bytes", Form.INTEGER),
    Key("size", "size", Form.INTEGER),  # bytes, as MTIA spells it
    Key("direction", "direction", Form.TEXT),  # of a copy, as MTIA spells it
    Key("grid", "grid", Form.JSON),
    Key("block", "block", Form.JSON),
    Key("registers per thread", "registers", Form.INTEGER),
    Key("shared memory", "shared", Form.INTEGER),
    Key("est. achieved occupancy %", "occupancy", Form.THOUSANDTHS),
    Key("graph node id", "graph_node", Form.INTEGER),
    Key("Collective name", "collective", Form.TEXT),
    Key("wait_on_stream", "wait_on_stream", Form.INTEGER),
    Key("wait_on_cuda_event_record_corr_id", "record_correlation", Form.INTEGER),
    Key("Device Id", "memory_device", Form.INTEGER),
    Key("Device Type", "memory_device_type", Form.INTEGER),
    Key("Bytes", "memory_bytes", Form.INTEGER),
    Key("Addr", "address", Form.ADDRESS),
    Key("Total Allocated", "total_allocated", Form.INTEGER),
    Key("Total Reserved", "total_reserved", Form.INTEGER),
    Key("correlation_id", "link", Form.LINK),  # as XLA spells it
)

KEYS = EVENT_KEYS + ARGUMENT_KEYS
# The whole args object as text: of collectives, of counters and, where a scanner is asked for them,
# of host events without a category. In these ``link`` stands as ``NO_LINK``: they repeat else.
ARGUMENTS = "arguments"
NO_LINK = b"0"
LINK_KEY = b'"correlation_id"'
LONGEST_LINKED = 4096  # bytes of arguments in which a link is looked for; XLA's have some hundred
COLUMNS = (*(key.column for key in KEYS), ARGUMENTS)
FORMS = (*(key.form for key in KEYS), Form.JSON)
INTERNED = frozenset({Form.TEXT, Form.TOKEN, Form.JSON})

PLACE = "place"  # the pair of process and thread, interned
_SPAN = ("start", "duration", "name", "category", PLACE)
LANE_COLUMNS: dict[Lane, tuple[str, ...]] = {
    Lane.HOST: (
        *_SPAN,
        "external",
        "external_2021",
        "sequence",
        "shapes",
        "shapes_2021",
        "dtypes",
        "strides",
        "values",
        "link",
        ARGUMENTS,
    ),
    Lane.API: (*_SPAN, "correlation", "external", "external_2021"),
    Lane.DEVICE: (
        *_SPAN,
        "device",
        "stream",
        "correlation",
        "external",
        "external_2021",
        "graph_node",
        "bytes",
        "size",
        "direction",
        "grid",
        "block",
        "registers",
        "shared",
        "occupancy",
        "collective",
        ARGUMENTS,
    ),
    Lane.SYNC: (
        *_SPAN,
        "device",
        "stream",
        "correlation",
        "wait_on_stream",
        "record_correlation",
    ),
    Lane.FLOW: ("start", "flow", "phase", "category", PLACE),
    Lane.MEMORY: (
        "start",
        PLACE,
        "memory_bytes",
        "address",
        "memory_device",
        "memory_device_type",
        "total_allocated",
        "total_reserved",
    ),
    Lane.COUNTER: ("start", "name", PLACE, ARGUMENTS),
}
_OF_SPANS = (LANE_COLUMNS[lane] for lane in (Lane.HOST, Lane.API, Lane.SYNC, Lane.DEVICE))
LANE_COLUMNS[Lane.PAIR] = (
    "phase",
    *dict.fromkeys(
        c for columns in _OF_SPANS for c in columns if c not in ("duration", "link", ARGUMENTS)
    ),
    ARGUMENTS,
)
"""Besides these, every row of a lane has its ``event``: the position in the file."""

MEMORY_EVENT = b"[memory]"
WINDOW_END = b"Record Window End"

CATEGORY_LANES: dict[str, Lane] = {
    "cpu_op": Lane.HOST,
    "python_function": Lane.HOST,
    "user_annotation": Lane.HOST,
    "overhead": Lane.HOST,
    "Operator": Lane.HOST,
    "cuda_runtime": Lane.API,
    "cuda_driver": Lane.API,
    "Runtime": Lane.API,
    "hip_runtime": Lane.API,
    "hip_driver": Lane.API,
    "xpu_runtime": Lane.API,
    "xpu_driver": Lane.API,
    "mtia_runtime": Lane.API,
    "glow_runtime": Lane.API,
    "privateuse1_runtime": Lane.API,
    "privateuse1_driver": Lane.API,
    "kernel": Lane.DEVICE,
    "Kernel": Lane.DEVICE,
    "gpu_memcpy": Lane.DEVICE,
    "Memcpy": Lane.DEVICE,
    "gpu_memset": Lane.DEVICE,
    "Memset": Lane.DEVICE,
    "gpu_user_annotation": Lane.DEVICE,
    "mtia_ccp_events": Lane.DEVICE,
    "hpu_op": Lane.DEVICE,
    "collective_comm": Lane.DEVICE,
    "cuda_sync": Lane.SYNC,
    "Trace": Lane.RAW,
    "cuda_profiler_range": Lane.RAW,
    "ac2g": Lane.IGNORED,
    "async": Lane.IGNORED,
    "async_cpu_to_gpu": Lane.IGNORED,
    "async_gpu": Lane.IGNORED,
}
"""Categories of complete events and arrows since 2021; any other complete event is HOST."""


def lane_of(phase: int, category: bytes, name: bytes, timed: bool, spanned: bool) -> Lane:
    """The lane of an event. ``timed``: it has a start; ``spanned``: a start and a duration."""
    known = _LANES.get(category, Lane.HOST)
    match chr(phase):
        case "X":
            if known is Lane.RAW:
                return Lane.RAW
            lane = Lane.HOST if known is Lane.IGNORED else known
            return lane if spanned else Lane.UNTIMED
        case "B" | "E":
            return Lane.PAIR if timed else Lane.UNTIMED
        case "s" | "f" | "t":
            if known is Lane.IGNORED:
                return Lane.IGNORED
            return Lane.FLOW if timed else Lane.UNTIMED
        case "i" | "I" if name == MEMORY_EVENT:
            return Lane.MEMORY if timed else Lane.UNTIMED
        case "i" | "I" if name == WINDOW_END:
            return Lane.RAW
        case "i" | "I":
            return Lane.IGNORED
    return _OF_PHASE.get(chr(phase), Lane.UNREAD)


_OF_PHASE = {"M": Lane.RAW, "C": Lane.COUNTER, "\0": Lane.IGNORED}


_LANES = {category.encode(): lane for category, lane in CATEGORY_LANES.items()}
