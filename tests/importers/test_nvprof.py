"""Operations of a device, as nvprof wrote them in CSV."""

import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.trace import DeviceKind, MemoryKind

TITLE = "==7== NVPROF is profiling process 7, command: python train.py\n==7== Profiling result:\n"
HEADER = (
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z",'
    '"Registers Per Thread","Static SMem","Dynamic SMem","Size","Throughput","SrcMemType",'
    '"DstMemType","Device","Context","Stream","Name","Correlation_ID"\n'
    "s,ms,,,,,,,,KB,B,MB,GB/s,,,,,,,\n"
)
TRACED = (
    TITLE
    + HEADER
    + '9.594997,0.283598,,,,,,,,,,0.500000,1.9,"Pageable","Device","Tegra X1 (0)","1","7",'
    '"[CUDA memcpy HtoD]",135\n'
    '9.620000,0.500000,8,1,1,256,1,1,50,0.0,0,,,,,"Tegra X1 (0)","1","7","sgemm_32 [153]",153\n'
    '9.630000,0.001500,,,,,,,,,,0.000122,0.07,"Device",,"Tegra X1 (0)","1","8",'
    '"[CUDA memset]",160\n'
    '9.640000,0.250000,1,1,1,32,1,1,9,0.0,0,,,,,"Tesla T4 (1)","1","7",'
    '"ncclAllReduceRingLLKernel_sum_f32(ncclColl)",171\n'
)


def traced(folder, text=TRACED):
    path = folder / "gpu.csv"
    path.write_text(text)
    return load(path)


def test_what_a_device_did_and_when(tmp_path):
    trace = traced(tmp_path)
    ops = trace.device_ops
    assert ops["start_ns"].tolist() == [0, 25_003_000, 35_003_000, 45_003_000]
    assert ops["duration_ns"].tolist() == [283_598, 500_000, 1_500, 250_000]
    kinds = (DeviceKind.COPY, DeviceKind.KERNEL, DeviceKind.MEMSET, DeviceKind.COLLECTIVE)
    assert ops["kind"].tolist() == [*kinds]
    assert trace.text(ops, "name", 1) == "sgemm_32"
    assert ops["device"].tolist() == [0, 0, 0, 1]
    assert [device.name for device in trace.devices] == ["Tegra X1", "Tesla T4"]
    assert ops.value("bytes", 0) == 2**19
    assert ops.value("from_memory", 0) == MemoryKind.PAGEABLE
    assert ops.value("stream", 2) == 8
    assert trace.text(ops, "grid", 1) == "[8,1,1]"
    assert not ops.known("bytes")[1]


def test_rows_that_are_cut_cost_nothing_else(tmp_path):
    trace = traced(tmp_path, f"{TRACED}9.65,0.1\nx,0.1{',' * 18}\n")
    assert len(trace.device_ops) == 4
    facts = [trace.text(trace.health, "fact", at) for at in range(len(trace.health))]
    assert {"rows-cut", "times-unsound"} <= set(facts)


def test_a_table_without_operations_leads_to_a_recorder_of_today(tmp_path):
    with pytest.raises(UnreadableFile) as refused:
        traced(tmp_path, TITLE + HEADER)
    assert "nsys profile" in refused.value.hint


def test_what_is_printed_without_csv_is_refused(tmp_path):
    # a start has five digits behind its point: kernels of 1 µs would be on top of each other
    text = TITLE + "   Start  Duration  Stream  Name\n3.16135s  2.1760us  7  [CUDA memset]\n"
    with pytest.raises(UnreadableFile, match="printed by nvprof"):
        traced(tmp_path, text)
