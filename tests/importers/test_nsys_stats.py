import pytest

import pinchpoint as pp
from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.trace import ApiKind, DeviceKind, MemoryKind

GPU_TRACE = """Generating SQLite file run.sqlite from run.nsys-rep
Processing [run.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1000,250,12,4,2,1,128,1,1,32,0.0,0.0,,,,,NVIDIA A10 (1),1,,7,"void gemm<float, 4>(float *, int)"
2000,100,13,,,,,,,,,,1.5,8000,Pageable,Device,NVIDIA A10 (1),1,,7,[CUDA memcpy Host-to-Device]
2500,10,14,,,,,,,,,,0.001,8000,,Device,NVIDIA A10 (1),1,,7,[CUDA memset]

Processing [run.sqlite] with [cuda_api_trace.py]...
Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name
500,20,cudaLaunchKernel,0,12,77,78,20,python
"""  # noqa: E501

SUMMARY = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,300,3,100.0,100.0,90,110,8.2,"void gemm<float, 4>(float *, int)"
25.0,100,1,100.0,100.0,100,100,0.0,other
"""


def read(tmp_path, text):
    path = tmp_path / "report.csv"
    path.write_text(text)
    return pp.load(path)


def test_traces_become_operations_and_calls(tmp_path):
    trace = read(tmp_path, GPU_TRACE)
    ops = trace.device_ops
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COPY, DeviceKind.MEMSET]
    assert ops["start_ns"].tolist() == [500, 1500, 2000]
    assert ops["duration_ns"].tolist() == [250, 100, 10]
    assert [ops.value("bytes", i) for i in range(3)] == [None, 1_500_000, 1_000]
    assert trace.text(ops, "name", 0) == "void gemm<float, 4>(float *, int)"
    assert trace.text(ops, "grid", 0) == "[4,2,1]"
    assert trace.text(ops, "grid", 1) is None
    assert ops["device"].tolist() == [1, 1, 1]
    assert [(d.number, d.name) for d in trace.devices] == [(1, "NVIDIA A10")]
    assert ops.value("from_memory", 1) == MemoryKind.PAGEABLE
    assert ops.value("to_memory", 1) == MemoryKind.DEVICE
    assert trace.api_calls["kind"].tolist() == [ApiKind.LAUNCH]
    assert [ops.value("api_call", i) for i in range(3)] == [0, None, None]
    assert (trace.threads[0].process, trace.threads[0].thread) == ("77", "78")


PRINTED = """Generating SQLite file run.sqlite from run.nsys-rep
Processing [run.sqlite] with [cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)               Name
 --------  ---------------  ---------  --------  ------------------------------
     75.0            1,300          3     433.3  void gemm<float, 4>(float *, i
     25.0              100          1     100.0  other

Processing [run.sqlite] with [cuda_gpu_trace.py]...

 Start (ns)  Duration (ns)  CorrId  GrdX  GrdY  GrdZ  Device           Strm  Name
 ----------  -------------  ------  ----  ----  ----  ---------------  ----  ------
      1,000            250      12     4     2     1  NVIDIA A10 (1)      7  gemm
      2,000            100      13                    NVIDIA A10 (1)      7  [CUDA memset]
"""


def test_printed_tables_read_as_csv_does(tmp_path):
    trace = read(tmp_path, PRINTED)
    (summary,) = trace.summaries
    assert summary.columns == ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Name")
    assert summary.rows[0] == ("75.0", "1,300", "3", "433.3", "void gemm<float, 4>(float *, i")
    ops = trace.device_ops
    assert (ops["start_ns"].tolist(), ops["duration_ns"].tolist()) == ([0, 1000], [250, 100])
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.MEMSET]
    assert trace.devices[0].name == "NVIDIA A10"


def test_other_units_of_time(tmp_path):
    trace = read(tmp_path, "Start (ms),Duration (us),CorrId,Strm,Name\n1.5,2.5,3,7,gemm\n")
    assert trace.device_ops["duration_ns"].tolist() == [2_500]


def test_summaries_are_kept_and_hold_no_timeline(tmp_path):
    trace = read(tmp_path, SUMMARY)
    assert trace.device_ops is None
    (summary,) = trace.summaries
    assert summary.columns[1] == "Total Time (ns)"
    assert [row[1] for row in summary.rows] == ["300", "100"]


def test_headers_of_2021(tmp_path):
    text = "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n100.0,5,1,5.0,5,5,k\n"
    assert read(tmp_path, text).summaries[0].rows[0][-1] == "k"


def test_a_row_that_is_cut_off_is_counted(tmp_path):
    text = "Start (ns),Duration (ns),CorrId,Strm,Name\n10,2,3,7,gemm\n20,3"
    trace = read(tmp_path, text)
    assert trace.device_ops["duration_ns"].tolist() == [2]
    assert trace.source.truncated
    assert trace.text(trace.health, "fact", 0) == "rows-cut"


def test_numbers_that_are_none(tmp_path):
    rows = "x,2,3,7,a\n1,-2,3,7,b\n9e99.0,1,1,7,c\n5,2,,,d\n"
    text = "Start (ns),Duration (ns),CorrId,Strm,Name\n" + rows
    ops = read(tmp_path, text).device_ops
    assert ops["duration_ns"].tolist() == [2]
    assert ops.value("correlation", 0) is None


def test_a_table_without_rows(tmp_path):
    with pytest.raises(UnreadableFile, match="no rows"):
        read(tmp_path, "Start (ns),Duration (ns),CorrId,Strm,Name\n")


def test_a_screen_shows_what_a_sum_is_of(tmp_path, capsys):
    path = tmp_path / "report.csv"
    path.write_text(SUMMARY)
    assert main(["diagnose", str(path)]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "75.0" in line]
    assert shown[0].startswith("gemm ")
