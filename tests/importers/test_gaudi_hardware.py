"""What engines of a Gaudi did, as Synapse writes it in CSV."""

import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load

HEAD = "Name,Trace Source,Engine,Event type,Timestamp[usec],Context ID,Device,Operation,Data Type\n"


def row(name, engine, event, microseconds, operation="", device="accel0", source="HW"):
    return f"{name},{source},{engine},{event},{microseconds},0,{device},{operation},float32\n"


# Two engines at once from 0 to 10 µs, a copy from 12 to 14, transfers from 14 to 20.
ENGINES = HEAD + "".join((
    row("g_1_conv", "[HD0] MME", "BEGIN", "554804520.000000", "Convolution"),
    row("g_1_conv", "[HD1] MME", "BEGIN", "554804522.000250", "Convolution"),
    row("g_1_conv", "[HD0] MME", "INSTANT", "554804523.0", "Convolution"),
    row("Outgoing", "[D2] Cache Slice", "COUNTER", "554804523.5"),
    row("g_1_conv", "[HD0] MME", "END", "554804530.000000", "Convolution"),
    row("g_1_conv", "[HD1] MME", "END", "554804529.000250", "Convolution"),
    row("memcpy", "EDMA 1", "BEGIN", "554804532.0"),
    row("memcpy", "EDMA 1", "END", "554804534.0"),
    row("reduce", "NIC 3", "BEGIN", "554804534.0"),
    row("reduce", "NIC 3", "END", "554804540.0"),
    row("never_begun", "[HD0] TPC 1", "END", "554804541.0"),
    row("of the host", "Host", "BEGIN", "554804541.0", source="Host"),
))  # fmt: skip


def test_each_engine_is_a_stream_of_its_device(tmp_path):
    path = tmp_path / "hw_prof_accel0.csv"
    path.write_text(ENGINES)
    trace = load(path)
    ops = trace.device_ops
    assert [trace.text(ops, "name", at) for at in range(len(ops))] == [
        "Convolution", "Convolution", "memcpy", "reduce"
    ]  # fmt: skip
    assert ops["start_ns"].tolist() == [0, 2000, 12_000, 14_000]
    assert ops["duration_ns"].tolist() == [10_000, 7000, 2000, 6000]
    assert ops["kind"].tolist() == [1, 1, 2, 4]
    assert len(set(ops["stream"].tolist())) == 4
    assert trace.devices[0].name == "Gaudi"
    facts = [trace.text(trace.health, "fact", at) for at in range(len(trace.health))]
    assert "times-unsound" in facts  # what ends and has not begun


def test_of_operations_that_did_not_end_nothing_is_said(tmp_path):
    path = tmp_path / "hw_prof_accel0.csv"
    path.write_text(HEAD + row("a", "[HD0] MME", "BEGIN", "1.0"))
    with pytest.raises(UnreadableFile, match="no operation of an engine"):
        load(path)
