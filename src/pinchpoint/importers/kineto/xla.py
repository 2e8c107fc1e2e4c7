"""Chrome traces of JAX and TensorFlow: no categories, and the device's streams as threads.

Their full form is the ``.xplane.pb`` file beside them. Here only what runs on a stream moves to
the device's side; the other lines of a device repeat it (modules, steps, operations).
"""

import re

import numpy as np

from pinchpoint.importers.kineto.columns import Columns
from pinchpoint.importers.kineto.fields import Lane
from pinchpoint.importers.kineto.rare import Rare
from pinchpoint.importers.kineto.threads import place_text

_DEVICE = re.compile(r"/device:\w+:(\d{1,5})$")


def device_number(process_name: str | None) -> int | None:
    """The number in ``/device:GPU:0``; None for other processes."""
    found = _DEVICE.match(process_name or "")
    return int(found[1]) if found else None


def move_streams(columns: Columns, rare: Rare) -> None:
    """Take the rows of device processes out of the host's lane, and keep those of streams."""
    if not any(device_number(name) is not None for name in rare.process_names.values()):
        return
    lanes = np.full(len(columns.places) + 1, Lane.HOST, np.int64)
    for position, place in enumerate(columns.places):
        process, thread = place_text(place)
        if device_number(rare.process_names.get(process)) is None:
            continue
        labels = rare.thread_labels.get((process, thread), [])
        is_stream = any(label.startswith("Stream") for label in labels)
        lanes[position] = Lane.DEVICE if is_stream else Lane.IGNORED
    columns.move_host_rows(lanes)
