"""Rare events and arguments: the same whether msgspec or Python reads them."""

import pytest

from pinchpoint.importers.kineto.reading.rare import read_rare
from pinchpoint.importers.kineto.reading.scanner import _argument_texts

LABEL = b'{"name":"process_name","ph":"M","pid":7,"tid":"0","args":{"name":" %s "}}'
EVENTS = (
    LABEL % b"python",
    b'{"ph":"M","name":"thread_name","pid":7,"tid":3,"args":{"name":"main"}}',
    b'{"ph":"M","name":"process_labels","pid":"a b","args":{"labels":"GPU 1"}}',
    b'{"ph":"M","name":"process_sort_index","pid":0,"args":[1,2]}',
    b'{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"S","ts":1,"dur":9.0005}',
    b'{"ph":"X","cat":"cuda_profiler_range","name":"k","pid":0,"ts":1,"dur":2,"args":{"m":1e3}}',
    b'{"ph":"i","name":"Record Window End","pid":"","tid":"","ts":200.125}',
    b'{"ph":"C","ph":"M","name":"process_name","pid":1,"args":{"name":"a"},"args":{"name":"b"}}',
    b'{"ph":"M","name":"process_name","pid":1,"args":{"name":"a"},"args":null}',
)


def leniently(event):
    """The event with a comma that strict JSON does not allow."""
    return event[:-1] + b",}"


@pytest.mark.parametrize("event", EVENTS)
def test_strict_and_broken_text_say_the_same(event):
    assert read_rare([(0, event)]) == read_rare([(0, leniently(event))])
    assert _argument_texts([event]) == _argument_texts([leniently(event)])


def test_what_strict_text_says():
    rare = read_rare(list(enumerate(EVENTS)))
    assert rare.process_names == {"7": "python", "1": "a"}
    assert rare.process_labels == {"a b": "GPU 1"}
    assert rare.thread_labels == {("7", "3"): ["main"]}
    assert rare.recording_ns == (1_000, 10_001)
    assert rare.ranges == [(1_000, "0", "k", {"m": 1000.0})]
    assert rare.window_end_ns == 200_125


def test_the_last_of_repeated_names_counts():
    texts = [LABEL % name for name in (b"first", b"second", b"first")]
    assert read_rare(list(enumerate(texts))).process_names == {"7": "first"}


def test_an_escape_is_read_as_it_is_written():
    key = b'{"ph":"M","name":"process_name","pid":1,"args":{"name":"a"},"\\u0070h":"C"}'
    value = b'{"ph":"M","name":"process_name","pid":1,"args":{"name":"a\\u0062"}}'
    assert read_rare([(0, key)]).process_names == {"1": "a"}
    assert read_rare([(0, value)]).process_names == {"1": "ab"}
