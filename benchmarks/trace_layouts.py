"""The made-up trace in the layouts that tools write: the same events, spelt otherwise.

``kineto`` is the layout of ``torch.profiler``, which the native reader is built for; the others
should be read at no less than half of its rate.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import synthetic_trace

Event = dict[str, Any]

SORTED_KEYS = {"sort_keys": True, "indent": 1}
MINIFIED = {"separators": (",", ":")}
# As many lines a span as in a public trace of an MTIA device: 310,000 to 138,000 spans.
METADATA_OF_A_SPAN = 2
XLA_DEVICE, XLA_STREAM = 1, 13


def pairs(events: list[Event]) -> Iterator[Event]:
    """Complete events as one that begins and one that ends, in order of time on each thread."""
    for event in events:
        if event["ph"] != "X":
            yield event
            continue
        took = event["dur"]
        yield {k: v for k, v in event.items() if k != "dur"} | {"ph": "B"}
        end = {k: event[k] for k in ("pid", "tid", "name")}
        yield end | {"ph": "E", "ts": round(event["ts"] + took, 3)}


def times_as_text(events: list[Event]) -> Iterator[Event]:
    """Times in quotes, as some exporters write them against loss of digits."""
    for event in events:
        yield event | {k: f"{event[k]:.3f}" for k in ("ts", "dur") if k in event}


def with_metadata(events: list[Event]) -> Iterator[Event]:
    """Names of processes and threads again with every span."""
    name = {"ph": "M", "ts": 0.0, "pid": synthetic_trace.PROCESS, "tid": synthetic_trace.MAIN}
    said = (
        name | {"name": "process_name", "args": {"name": "python"}},
        name | {"name": "thread_name", "args": {"name": "thread 4100 (python)"}},
    )
    for event in events:
        yield event
        if event["ph"] == "X":
            yield from said[:METADATA_OF_A_SPAN]


def with_counters(events: list[Event]) -> Iterator[Event]:
    """A sample of a counter with every span."""
    for event in events:
        yield event
        if event["ph"] == "X":
            at = {"ph": "C", "ts": event["ts"], "pid": 0, "tid": 0}
            yield at | {"name": "GPU 0 Power", "args": {"W": event["dur"]}}


def as_jax(events: list[Event]) -> Iterator[Event]:
    """No categories: the process and the thread say what ran where."""
    labels = (("/host:CPU", 701, "python"), ("/device:GPU:0", XLA_DEVICE, f"Stream #{XLA_STREAM}"))
    for name, process, line in labels:
        thread = XLA_STREAM if process == XLA_DEVICE else synthetic_trace.MAIN
        at = {"ph": "M", "pid": process}
        yield at | {"name": "process_name", "args": {"name": name}}
        yield at | {"tid": thread, "name": "thread_name", "args": {"name": line}}
    for event in events:
        if event["ph"] == "X":
            yield _as_xla(event)


def _as_xla(event: Event) -> Event:
    place = {"pid": 701, "tid": event["tid"]}
    said: dict[str, Any] = {}
    linked = event["args"].get("correlation")
    if linked is not None:
        said["correlation_id"] = str(linked)
    if event.get("cat") == "kernel":
        place = {"pid": XLA_DEVICE, "tid": XLA_STREAM}
        said |= {"hlo_op": "fusion.1", "hlo_module": "jit_step", "tf_op": "jit(step)/dot_general"}
    times = {k: event[k] for k in ("ts", "dur")}
    named = {"name": "cuLaunchKernel" if event.get("cat") == "cuda_runtime" else event["name"]}
    return {"ph": "X"} | place | times | named | {"args": said}


def shuffled(events: list[Event]) -> Iterator[Event]:
    """In no order of time, as writers with several buffers leave them."""
    order = events.copy()
    random.Random(1).shuffle(order)
    yield from order


LAYOUTS: dict[str, tuple[Callable[[list[Event]], Iterator[Event]], dict[str, Any]]] = {
    "kineto": (iter, {"indent": 2}),
    "minified (TensorBoard)": (iter, MINIFIED),
    "keys sorted, indented": (iter, SORTED_KEYS),
    "JAX, no categories": (as_jax, MINIFIED),
    "begin and end events": (pairs, MINIFIED),
    "times in quotes": (times_as_text, MINIFIED),
    "metadata with each span": (with_metadata, MINIFIED),
    "counter with each span": (with_counters, MINIFIED),
    "in no order of time": (shuffled, MINIFIED),
}


def write(folder: Path, size: int) -> dict[str, Path]:
    """Write the trace of about ``size`` bytes once in each layout; the files by layout."""
    original = folder / "kineto.json.gz"
    synthetic_trace.write(original, size)
    with gzip.open(original, "rt") as file:
        document = json.load(file)
    events, files = document["traceEvents"], {"kineto": original}
    for number, (name, (change, style)) in enumerate(LAYOUTS.items()):
        if name in files:
            continue
        files[name] = folder / f"layout{number}.json.gz"
        frame = {} if change is as_jax else document
        text = json.dumps(frame | {"traceEvents": list(change(events))}, **style)
        files[name].write_bytes(gzip.compress(text.encode(), 1))
    return files
