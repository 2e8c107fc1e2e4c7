"""The native and the plain scanner give the same trace, on good text and on broken text."""

import json
import random
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kineto_documents import (
    SCANNERS,
    differences,
    document,
    event,
    kernel,
    launched,
    op,
    read_with,
    step,
    written,
)
from pinchpoint.errors import UnreadableFile

needs_native = pytest.mark.skipif("native" not in SCANNERS, reason="no compiled scanner")

DOCUMENT = document(
    {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "args": {"name": "python"}},
    {"ph": "M", "name": "thread_name", "pid": 10, "tid": 10, "args": {"name": "thread 10"}},
    step(1, 100.125, 50),
    op('a "quoted" \\ name é', 101, 20.5, Input_Dims=[[2, 3], []], Concrete_Inputs=["", "[1]"]),
    event("nn.Module: Linear_0", "python_function", 102, 3),
    *launched("ncclDevKernel_AllReduce", 110, 115.001, 7, 5),
    kernel("gemm", 130.25, 10, 6, grid=[1, 2, 3], Collective_name="allreduce", dtype="Float"),
    event("Memset (Device)", "gpu_memset", 141, 1, place=(0, 7), bytes="64", stream="7"),
    event("Stream Wait Event", "cuda_sync", 142, 2, place=(0, 7), stream=7, wait_on_stream=9),
    {"ph": "s", "id": 4, "pid": 10, "tid": 10, "ts": 101, "cat": "fwdbwd", "name": "fwdbwd"},
    {"ph": "f", "id": 4, "pid": 10, "tid": 11, "ts": 120, "cat": "fwdbwd", "name": "fwdbwd"},
    {"ph": "s", "id": 5, "pid": 10, "tid": 10, "ts": 101, "cat": "ac2g", "name": "ac2g"},
    {"ph": "i", "name": "[memory]", "s": "t", "pid": 10, "tid": 10, "ts": 102.5,
     "args": {"Bytes": -512, "Addr": 18446744073709551615, "Device Type": 1, "Device Id": 0}},
    {"ph": "C", "name": "gpu", "pid": "GPU 0 Counters", "ts": 103, "args": {"busy": 0.5}},
    {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 200},
    baseTimeNanoseconds=10**18,
    distributedInfo={"rank": 3, "world_size": 8},
    traceName="x",
)  # fmt: skip


def read_both(path, block_bytes=None):
    """Read with both scanners; None if both refuse the file in the same words."""
    results = []
    for scanner in ("native", "plain"):
        try:
            results.append(read_with(path, scanner, block_bytes))
        except UnreadableFile as error:
            results.append(str(error))
    native, plain = results
    if isinstance(native, str) or isinstance(plain, str):
        assert native == plain
        return None
    assert differences(native, plain) == []
    return native


@needs_native
def test_on_a_whole_document(tmp_path):
    trace = read_both(written(tmp_path, DOCUMENT))
    assert len(trace.device_ops) == 3
    assert len(trace.host_ops) == 3


@needs_native
@pytest.mark.parametrize("block_bytes", [1, 7, 100, 333, 1000])
def test_where_the_text_is_cut_makes_no_difference(tmp_path, block_bytes):
    path = written(tmp_path, DOCUMENT)
    whole = read_with(path, "plain")
    assert differences(read_both(path, block_bytes), whole) == []


@needs_native
@pytest.mark.parametrize("where", ["middle", "end", "after"])
def test_a_hole_of_zeros_costs_no_memory_and_only_what_it_replaced(tmp_path, where):
    middle = DOCUMENT.rindex("{", 0, DOCUMENT.index("gemm"))
    at = {"middle": middle, "end": DOCUMENT.rindex("]")}
    cut = at.get(where, len(DOCUMENT))
    hole = "\0" * (32 << 20)  # as long as the longest event; blocks have 2 MB
    path = written(tmp_path, DOCUMENT[:cut] + hole + DOCUMENT[cut:])
    tracemalloc.start()
    trace = read_both(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace.device_ops) == 3
    assert most < len(hole)


@needs_native
def test_what_is_absent_beside_events_moved_to_a_device_stays_absent(tmp_path):
    lane = {"pid": 1, "tid": 7}
    path = written(
        tmp_path,
        document(
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
            {"ph": "M", "name": "thread_name", **lane, "args": {"name": "Stream #7(Compute)"}},
            {"ph": "X", "name": "fusion", **lane, "ts": 1, "dur": 2},
            kernel("k", 10, 5, 9),
            event("k2", "gpu_memset", 30, 2, place=(0, 7)),  # without numbers
        ),
    )
    trace = read_both(path)
    assert trace.device_ops.known("correlation").tolist() == [False, True, False]
    assert not trace.device_ops.known("bytes").any()


@needs_native
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([None, 50, 400]))
def test_on_damaged_text(tmp_path, seed, block_bytes):
    path = written(tmp_path, damaged(DOCUMENT.encode(), random.Random(seed)))
    read_both(path, block_bytes)


def damaged(raw, rng):
    """The text with a few bytes lost, doubled, swapped for others, or its end cut off."""
    text = bytearray(raw)
    if rng.random() < 0.3:
        del text[rng.randrange(len(text)) :]
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                del text[at : at + rng.randrange(1, 12)]
            case 1:
                text[at:at] = rng.choice(PIECES)
            case 2:
                text[at : at + 1] = bytes([rng.randrange(256)])
            case 3:
                start = rng.randrange(len(text) + 1)
                text[at:at] = text[start : start + rng.randrange(40)]
    return bytes(text)


PIECES = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\x00", b" ", b"NaN", b"-", b".",
    b"1e5",
    b"null", b'"args": {', b'"ts": ', b'"dur": "12.5"', b'}, {"ph": "X", ', b"\xff\xfe", b"\\u0041",
    b"9" * 25, b'"name": "', b'"cat": "kernel"', b'"tid": -5', b"1.5e-3", b"Infinity", b"N/A",
]  # fmt: skip


@needs_native
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text('a "\\[]{}|,', max_size=40), st.integers(0, 20))
def test_on_brackets_and_quotes_inside_brackets(tmp_path, text, blanks):
    value = " " * blanks + json.dumps([text, {"key": [[text]]}, []])
    body = (
        f'{{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1, "dur": 2, "args": {{"x": {value}}}}}'
    )
    trace = read_both(written(tmp_path, f'{{"traceEvents": [{body}, {body}]}}'))
    assert len(trace.host_ops) == 2


VALUES = [
    "5", "-5", "5.0", "5.25", "0.0005", "5e2", "5E-2", "1e400", "-0", "007", "1.", ".5", "+5",
    "--5",
    "1.2.3", "1e", "0x10", "NaN", "-Infinity", "N/A", "null", "true", '""', '"5"', '" 5"', '"5 "',
    '"abc"', '"\\u0035"', "[1, 2]", "{}", '{"a": "}"}', "5 6", "5\n", "99999999999999999999",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "12345678901234567890.123", "1712169113264587.123", "1712169113264587.1234", "4999999.9999",
    "1" * 400, "0." + "0" * 30 + "1", "1" + "0" * 30 + "e-25", "1e-0000000000000000000000001",
    "1234567", "12345678", "12345678.", "123456789.12", "123456789012345", "1234567890123456",
    "12345678x", "1234567.\xe9", "12345678/", "1234:", "unquoted text", "", "   ",
]  # fmt: skip


@needs_native
@pytest.mark.parametrize("key", ["ts", "dur", "name", "cat", "pid", "tid", "ph", "args"])
def test_on_every_kind_of_value(tmp_path, key):
    usual = {
        "ph": '"X"',
        "cat": '"cpu_op"',
        "name": '"a"',
        "pid": "1",
        "tid": "2",
        "ts": "3",
        "dur": "4",
    }
    good = json.dumps(op("b", 10, 5))
    for value in VALUES:
        odd = ", ".join(f'"{k}": {v}' for k, v in (usual | {key: value}).items())
        text = f'{{"traceEvents": [{good}, {{{odd}}}, {good}]}}'
        assert len(read_both(written(tmp_path, text)).host_ops) >= 2, value


# One for each way of reading: links, places, sizes, three numbers, ratios, texts.
ARGUMENT_KEYS = ["correlation", "stream", "bytes", "grid", "est. achieved occupancy %", "dtype"]


@needs_native
@pytest.mark.parametrize("key", ARGUMENT_KEYS)
def test_on_every_kind_of_argument(tmp_path, key):
    begin = (
        '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": '
    )
    for value in VALUES:
        once, twice = f'{{"{key}": {value}, "dtype": 1}}', f'{{"{key}": 1, "{key}": {value}}}'
        assert read_both(written(tmp_path, f"[{begin}{once}}}, {begin}{twice}}}]")), value


@needs_native
@pytest.mark.parametrize(
    "text",
    [
        pytest.param('[{"ph":"X"', id="cut in an event"),
        pytest.param('[{"ph":"X","ts":1,"dur":1,"name":"a\\', id="cut after a backslash"),
        pytest.param('{"traceEvents":[', id="cut at the beginning"),
        pytest.param('{"traceEvents":[]}', id="no events"),
        pytest.param("[{}, {}, 5, {}]", id="a number among events"),
        pytest.param('[{"ph":"X","args":{"a":[[[}]]]}}]', id="brackets that do not match"),
        pytest.param('[{"p\\u0068":"X","ts":1,"dur":1}]', id="an escaped key"),
        pytest.param('[{"ph":"X","ts":1,"dur":1,"args":{"args":{"stream":1}}}]', id="nested args"),
        pytest.param('[{"ph":"X","ts":1,"dur":1,"args":{"stream":1},"args":{}}]', id="args twice"),
        pytest.param('[{"ph":"X","ts":1,"ts":"x","dur":1}]', id="ts twice"),
        pytest.param("[" + '{"ph":"X","ts":1,"dur":1},' * 3 + "]garbage", id="after the end"),
        pytest.param('[{"ph":"X","ts":1,"dur":1,"name":"\ud800"}]', id="lone surrogate"),
        pytest.param('[{"ph":"X","ts":1 "dur":1,,"name":"a",}]', id="commas"),
    ],
)
def test_on_odd_text(tmp_path, text):
    path = written(tmp_path, text.encode("utf-8", "surrogatepass"))
    for block_bytes in (None, 1, 20):
        read_both(path, block_bytes)


def named(process, name):
    """The label of a process."""
    return {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}


LINKS = [
    '"7"',
    "7",
    '"007"',
    "1.5",
    "null",
    '"1234567890123456789"',
    '7,"x":"correlation_id"',
    "{}",
]


@needs_native
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("block_bytes", [None, 60])
def test_on_the_arguments_that_xla_writes(tmp_path, late, block_bytes):
    labels = [named(3, "/host:CPU"), named(1, "/device:GPU:0"), named(1, "/device:GPU:0")]
    labels.append(
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 13, "args": {"name": "Stream #13"}}
    )
    calls = ",".join(
        f'{{"ph":"X","pid":3,"tid":4,"ts":{n},"dur":0.5,"name":"cuLaunchKernel",'
        f'"args":{{"a":1,"correlation_id":{link}}}}}'
        for n, link in enumerate(LINKS)
    )
    kernel = (
        '{"ph":"X","pid":1,"tid":13,"ts":20,"dur":5,"name":"fusion",'
        '"args":{"correlation_id":"7","hlo_op":"fusion.1","hlo_module":"jit_step"}}'
    )
    odd = '{"ph":"X","cat":"cpu_op","pid":3,"tid":4,"ts":30,"dur":1,"name":"x","args":{"b":2}}'
    padding = " " * 300_000 if late else ""  # then the first stretch of text shows no XLA
    label = json.dumps(labels)[1:-1]
    trace = read_both(
        written(tmp_path, f'{{"traceEvents":[{padding}{label},{calls},{kernel},{odd},{label}]}}'),
        block_bytes,
    )
    assert [trace.names[n] for n in trace.compiled_ops["op"]] == ["fusion.1"]
    known = trace.api_calls.known("correlation")
    assert trace.api_calls["correlation"][known].tolist().count(7) >= 2
    assert trace.device_ops.known("api_call").all()
