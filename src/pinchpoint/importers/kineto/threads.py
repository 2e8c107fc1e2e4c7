"""Host threads: pairs of process and thread ids become positions in ``Trace.threads``."""

import numpy as np

from pinchpoint.importers.kineto.columns import Columns, used_in_order
from pinchpoint.importers.kineto.reading.fields import Lane
from pinchpoint.importers.kineto.reading.lenient import value_text
from pinchpoint.importers.kineto.reading.rare import Rare, device_in, thread_label
from pinchpoint.importers.kineto.reading.scan import Place
from pinchpoint.regex import regex
from pinchpoint.trace import Thread
from pinchpoint.trace.arrays import Array


class Threads:
    """Collects the threads of all tables; positions are given out in order of appearance."""

    def __init__(self, places: list[Place], rare: Rare) -> None:
        self._ids = [place_text(place) for place in places]
        self._rare = rare
        self._position: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._position)

    def positions(self, place: Array) -> Array:
        """The thread of each row of a place column."""
        there = np.zeros(len(self._ids), np.int32)
        for position in used_in_order(place, len(self._ids)):
            ids = self._ids[position]
            there[position] = self._position.setdefault(ids, len(self._position))
        return there[place]

    def freeze(self) -> tuple[Thread, ...]:
        """The threads with their labels."""
        return tuple(
            Thread(
                process,
                thread,
                thread_label(
                    self._rare.thread_labels.get((process, thread), []),
                    self._rare.process_names.get(process),
                ),
            )
            for process, thread in self._position
        )


def place_text(place: Place) -> tuple[str, str]:
    """Process and thread as text; empty where the event does not say."""
    process, thread = place
    return value_text(process or b""), value_text(thread or b"")


# ------------------------------------------------------------------------------------------------
# Chrome traces of JAX and TensorFlow: no categories, and the device's streams as threads.
#
# Their full form is the ``.xplane.pb`` file beside them. Here only what runs on a stream, or on
# the one line of a TPU's operations, moves to the device's side; the other lines of a device
# repeat it (modules, steps, operations).


OF_A_TPU = "XLA Ops"  # a line of a device without streams
_STREAM = "Stream"
_DEVICE = regex(r"/device:\w+:(\d{1,5})$")
# TensorFlow 1's timelines (``RunMetadata``): a process a stream, all of them again as ``all``, and
# copies again as ``memcpy``. The first versions say ``/gpu:0`` for ``/device:GPU:0``.
_TIMELINE = regex(
    r"/(?:device:\w+|gpu):(\d{1,5})/(?:stream:(\d{1,9}|all)|memcpy) (Compute|Tensors)$"
)


def device_number(process_name: str | None) -> int | None:
    """The number in ``/device:GPU:0`` and in a stream of it; None for other processes."""
    found = _DEVICE.match(process_name or "") or _TIMELINE.match(process_name or "")
    return int(found[1]) if found else None


def stream_number(process_name: str | None) -> int | None:
    """The stream that a process of a timeline stands for."""
    found = _TIMELINE.match(process_name or "")
    return int(found[2]) if found and (found[2] or "").isdigit() else None


def lines_of_devices(rare: Rare) -> dict[tuple[int, int | None], str]:
    """What runs on each line of each device: a stream, or all of a TPU, which has none."""
    found = {}
    for (process, thread), labels in rare.thread_labels.items():
        number = device_number(rare.process_names.get(process))
        if number is None:
            continue
        if any(label.startswith(_STREAM) for label in labels):
            found[number, device_in(thread)] = _STREAM
        elif OF_A_TPU in labels:
            found[number, device_in(thread)] = OF_A_TPU
    return found


# ``torch.autograd.profiler`` before it was built on Kineto: the operators again, as long as the
# device took between two events, in a process of this name whose thread is the device.
_BY_OPERATOR = b"CUDA functions"


def timed_by_operator(place: Place) -> bool:
    """Whether what stands there is what the device did for an operator."""
    return (place[0] or b"").strip(b'"') == _BY_OPERATOR


def move_streams(columns: Columns, rare: Rare) -> None:
    """Take the rows of device processes out of the host's lane, and keep those of streams."""
    if any(map(timed_by_operator, columns.places)):
        lane_of = [Lane.DEVICE if timed_by_operator(p) else Lane.HOST for p in columns.places]
        columns.move_host_rows(np.array([*lane_of, Lane.HOST], np.int64))
        return
    if not any(device_number(name) is not None for name in rare.process_names.values()):
        return
    lines = lines_of_devices(rare)
    told_apart = {
        device_number(name)
        for name in rare.process_names.values()
        if stream_number(name) is not None
    }
    of_tpus = {number for (number, _), line in lines.items() if line == OF_A_TPU}
    with_streams = {number for (number, _), line in lines.items() if line == _STREAM}
    lanes = np.full(len(columns.places) + 1, Lane.HOST, np.int64)
    for position, place in enumerate(columns.places):
        process, thread = place_text(place)
        number = device_number(rare.process_names.get(process))
        if number is None:
            continue
        if found := _TIMELINE.match(rare.process_names[process]):
            mine = found[3] == "Compute" and (
                number not in told_apart if found[2] == "all" else (found[2] or "").isdigit()
            )
            lanes[position] = Lane.DEVICE if mine else Lane.IGNORED
            continue
        kept = OF_A_TPU if number in of_tpus - with_streams else _STREAM
        line = lines.get((number, device_in(thread)))
        lanes[position] = Lane.DEVICE if line == kept else Lane.IGNORED
    columns.move_host_rows(lanes)
