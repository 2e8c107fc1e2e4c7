import os
from pathlib import Path

import pytest

import pinchpoint as pp
from importers.ncu_report import report, result, rule
from pinchpoint.errors import PinchpointError, UnreadableFile
from pinchpoint.importers.ncu import report_file
from pinchpoint.importers.ncu.launch import decimal_sign, number, triple, unit_of

DATA = Path(__file__).parents[1] / "data/ncu"
PAGES = ("kernels.raw.csv.gz", "kernels.raw.base.csv.gz", "kernels.details.csv.gz",
         "kernels.details.txt.gz")  # fmt: skip
SCALE = {"ns": 1, "us": 1e3, "ms": 1e6}


def metrics(trace):
    counters = trace.kernel_counters
    return {
        (int(counters["launch"][i]), trace.text(counters, "metric", i)): (
            counters.value("value", i),
            trace.text(counters, "unit", i),
        )
        for i in range(len(counters))
    }


def metric(trace, launch, name):
    return metrics(trace).get((launch, name))


def written(tmp_path, text, name="page.csv"):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("page", PAGES)
def test_every_page_of_a_recording_says_the_same(page):
    trace = pp.load(DATA / page)
    launches = trace.profiled_launches
    assert len(launches) == 10
    assert launches[0].grid == (2, 66, 1)
    assert launches[0].block == (384, 1, 1)
    assert launches[8].name == "strided_copy"
    assert trace.devices[0].compute_capability == (9, 0)
    assert trace.devices[0].multiprocessors == 132
    found = metrics(trace)
    durations = [found[i, "gpu__time_duration.sum"] for i in range(10)]
    assert [value * SCALE[unit] for value, unit in durations] == pytest.approx(
        [209024, 3253664, 175200, 175168, 130304, 60960, 122464, 2848, 1976512, 94944], rel=5e-3
    )
    assert found[8, "launch__grid_size"] == (65536.0, None)
    busy, unit = found[0, "sm__throughput.avg.pct_of_peak_sustained_elapsed"]
    assert (round(busy, 1), unit) == (90.3, "%")
    assert trace.device_ops is None


def test_the_tensor_operations_of_the_bf16_product_are_exact():
    trace = pp.load(DATA / "kernels.raw.base.csv.gz")
    value, _ = metric(trace, 0, "sm__ops_path_tensor_src_bf16_dst_fp32.sum")
    assert value == 2 * 4096**3


def test_rules_of_nvidia_are_kept_as_they_are():
    trace = pp.load(DATA / "kernels.details.csv.gz")
    said = {(r.launch, r.rule): r for r in trace.expert_notes}
    assert said[7, "LaunchConfiguration"].kind == "OPT"
    assert said[8, "UncoalescedGlobalAccess"].speedup_percent == 77.7
    assert said[8, "UncoalescedGlobalAccess"].speedup_kind == "global"
    assert "58720256 excessive sectors" in said[8, "UncoalescedGlobalAccess"].text
    printed = pp.load(DATA / "kernels.details.txt.gz").expert_notes
    assert len(printed) == len(trace.expert_notes)
    assert [r.kind for r in printed] == [r.kind for r in trace.expert_notes]


@pytest.mark.parametrize(
    ("texts", "sign"),
    [
        (["1,234.5", "12"], "."),
        (["1.234,5", "12"], ","),
        (["117.344", "0,48", "12,5"], ","),
        (["117.344", "0.48"], "."),
        (["1,234", "5,678"], "."),
        (["12,34", "117.344"], ","),
        ([], "."),
    ],
)
def test_the_decimal_sign_is_found(texts, sign):
    assert decimal_sign(texts) == sign


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("285,854", ".", 285854.0),
        ("117.344", ",", 117344.0),
        ("1.234,5", ",", 1234.5),
        ("1\u202f234,5", ",", 1234.5),
        ("1'234.5", ".", 1234.5),
        ("-0.5", ".", -0.5),
        ("1.5e+10", ".", 1.5e10),
        ("nan", ".", None),
        ("no data", ".", None),
        ("9" * 400, ".", None),
        ("1e300", ".", None),
        ("(!) n/a", ".", None),
        ("(16384, 1, 1)", ".", None),
        ("PolicySpread", ".", None),
        ("", ".", None),
    ],
)
def test_numbers(text, decimal, value):
    assert number(text, decimal) == value


def test_sizes_and_units():
    assert triple("(16384, 1, 1)") == (16384, 1, 1)
    assert triple("16384") is None
    assert unit_of("dram__bytes.sum.per_second") == "byte/s"
    assert unit_of("gpc__cycles_elapsed.avg.per_second") == "hz"
    assert unit_of("gpu__time_duration.sum") == "ns"
    assert unit_of("lts__t_sector_hit_rate.pct") == "%"


RAW = (
    '"ID","Kernel Name","Block Size","Grid Size","Device","CC","thread Domain:Push/Pop_Range:'
    'PL_Type:Msg","gpu__time_duration.sum","launch__cluster_policy"\n'
    '"","","","","","","","us",""\n'
    '"0","gemm, the first","(128, 1, 1)","(4, 1, 1)","0","8.6","step","1,234.5","PolicySpread"\n'
)


def test_noise_around_and_between_the_rows(tmp_path):
    lines = RAW.splitlines(keepends=True)
    noise = '==PROF== Connected to process 1 (python)\nloss: "unbalanced, 3.2\n'
    text = noise + lines[0] + lines[1] + "==WARNING== something\nepoch 1\n" + lines[2] + noise
    trace = pp.load(written(tmp_path, text))
    assert metric(trace, 0, "gpu__time_duration.sum") == (1234.5, "us")
    (launch,) = trace.profiled_launches
    assert launch.name == "gemm, the first"
    assert launch.texts == {"launch__cluster_policy": "PolicySpread"}


def test_much_output_of_the_program_before_the_table(tmp_path):
    text = "==PROF== Connected\n" + "loss 1.0\n" * 20_000 + RAW
    assert len(pp.load(written(tmp_path, text)).profiled_launches) == 1


def test_a_european_page(tmp_path):
    text = (
        RAW.replace("1,234.5", "1.234,5")
        + '"1","b","(1, 1, 1)","(1, 1, 1)","0","8.6","","0,25",""\n'
    )
    trace = pp.load(written(tmp_path, text))
    assert metric(trace, 0, "gpu__time_duration.sum") == (1234.5, "us")
    assert metric(trace, 1, "gpu__time_duration.sum") == (0.25, "us")


def test_two_pages_in_one_file(tmp_path):
    assert len(pp.load(written(tmp_path, RAW + RAW)).profiled_launches) == 2


def test_a_page_that_is_cut_in_a_row(tmp_path):
    cut = RAW + '"1","elementwise","(128, 1'
    trace = pp.load(written(tmp_path, cut))
    assert trace.source.truncated
    assert metric(trace, 0, "gpu__time_duration.sum") == (1234.5, "us")
    details = (
        '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","gemm","GPU Speed Of Light Throughput","Duration","us","5"\n'
        '"0","gemm","GPU Speed Of Light Throughput","Mem'
    )
    trace = pp.load(written(tmp_path, details))
    assert metric(trace, 0, "gpu__time_duration.sum") == (5.0, "us")
    assert trace.text(trace.health, "fact", 0) == "rows-cut"


def test_live_metrics_keep_their_names(tmp_path):
    text = (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Section Name","Metric Name",'
        '"Metric Unit","Metric Value"\n'
        '"0","7","a.out","host","k","Command line profiler metrics","dram__bytes.sum","Mbyte",'
        '"3.5"\n'
    )
    trace = pp.load(written(tmp_path, text))
    assert metric(trace, 0, "dram__bytes.sum") == (3.5, "Mbyte")


def test_a_header_without_rows(tmp_path):
    with pytest.raises(UnreadableFile, match="no profiled kernel"):
        pp.load(written(tmp_path, RAW.splitlines()[0] + "\n"))


def test_only_profiler_messages(tmp_path):
    text = "==PROF== Connected to process 1\n==PROF== Disconnected from process 1\n"
    with pytest.raises(UnreadableFile, match="no profiled kernel"):
        pp.load(written(tmp_path, text))


def test_counters_that_ncu_may_not_read_are_no_missing_kernel(tmp_path):
    text = "==PROF== Connected to process 1\n==ERROR== ERR_NVGPUCTRPERM - no permission\n"
    with pytest.raises(UnreadableFile, match="not allowed") as error:
        pp.load(written(tmp_path, text))
    assert "NVreg_RestrictProfilingToAdminUsers=0" in error.value.hint


def test_a_report_by_the_published_layout(tmp_path):
    strings: list[str] = []
    first = result(
        strings,
        "void gemm<float>(int)",
        {"gpu__time_duration.sum": 1500.0, "launch__device_id": 0, "launch__policy": "Spread"},
        rule("SOLBottleneck", "SpeedOfLight", "memory is busier", 4),
    )
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report([first, result(strings, "other", {"x__y.sum": 2**40})], strings))
    trace = pp.load(path)
    assert [x.name for x in trace.profiled_launches] == ["void gemm<float>(int)", "other"]
    assert trace.profiled_launches[0].grid == (2, 3, 1)
    assert trace.profiled_launches[0].stream == 7
    assert metric(trace, 0, "gpu__time_duration.sum") == (1500.0, "ns")
    assert metric(trace, 1, "x__y.sum") == (2.0**40, None)
    assert trace.devices[0].name == "NVIDIA TEST"
    assert trace.source.producer == "ncu 2025.3.1.0"
    (said,) = trace.expert_notes
    assert (said.kind, said.text) == ("OPT", "memory is busier")


@pytest.mark.parametrize("keep", range(0, 100, 7))
def test_a_report_that_is_cut_off(tmp_path, keep):
    strings: list[str] = []
    whole = report([result(strings, "k", {"a__b.sum": 1.0})], strings)
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(whole[: max(len(whole) * keep // 100, 4)])
    with pytest.raises(UnreadableFile, match=r"cut\.ncu-rep: (damaged|no profiled kernel|report)"):
        pp.load(path)


def test_a_report_of_another_layout(tmp_path):
    path = tmp_path / "new.ncu-rep"
    path.write_bytes(report([], [], version=8))
    with pytest.raises(UnreadableFile, match="layout 8") as error:
        pp.load(path)
    assert "ncu --import" in error.value.hint


def test_a_damaged_compressed_report(tmp_path):
    path = tmp_path / "a.ncu-repz"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(50))
    with pytest.raises(PinchpointError, match=r"(?i)zst") as error:
        pp.load(path)
    # Without a package that unpacks it, the command that does.
    assert "copy it again" in error.value.hint or "zstd -d" in error.value.hint


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes_after_the_magic_word(tmp_path, seed):
    path = tmp_path / "noise.ncu-rep"
    noise = bytes((i * i * 31 + i * seed * 7 + seed) % 256 for i in range(4_000))
    path.write_bytes(b"NVR\x00" + b"\x02\x00\x00\x00\x08\x07" + noise)
    with pytest.raises(UnreadableFile):
        pp.load(path)


PAGE = """[7] python@127.0.0.1
  gemm (2, 66, 1)x(384, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------------
    Metric Name             Metric Unit Metric Value
    ----------------------- ----------- ------------
    SM Frequency                    Ghz         1.35
    ----------------------- ----------- ------------

"""


@pytest.mark.parametrize(
    ("sound", "absurd"),
    [("Device 0", "Device 4294967296"), ("Context 1", f"Context {10**30}")],
)
def test_launches_with_numbers_that_no_device_has_are_left_out(tmp_path, sound, absurd):
    wrong = PAGE.replace(sound, absurd)
    trace = pp.load(written(tmp_path, PAGE + wrong, "page.txt"))
    assert [(launch.name, launch.device) for launch in trace.profiled_launches] == [("gemm", 0)]
    assert [trace.text(trace.health, "fact", i) for i in range(len(trace.health))] == ["rows-cut"]
    with pytest.raises(UnreadableFile, match="numbers that no device has"):
        pp.load(written(tmp_path, wrong, "page.txt"))


def test_a_report_that_becomes_shorter_meanwhile_does_not_end_the_process(tmp_path, monkeypatch):
    """What is mapped into memory and cut off would: SIGBUS."""
    texts = []
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(report([result(texts, "gemm", {"launch__grid_size": 3})], texts))
    usual = report_file._read

    def once_cut(content, shown):
        os.truncate(path, 0)
        return usual(content, shown)

    monkeypatch.setattr(report_file, "_read", once_cut)
    assert [launch.name for launch in pp.load(path).profiled_launches] == ["gemm"]


PER_KERNEL = """\
[7] python@127.0.0.1
  gemm_128x64 (1465, 1, 1)x(128, 1, 1), Device 0, CC 8.7, Invocations 3
    Section: GPU Speed Of Light Throughput
    ----------------- ----------- ------------ ------------ ------------
    Metric Name       Metric Unit      Minimum      Maximum      Average
    ----------------- ----------- ------------ ------------ ------------
    Duration                   ms         1.50         1.80         1.75
    Memory Throughput           %        63.68        64.18        63.96
    ----------------- ----------- ------------ ------------ ------------

    Section: Launch Statistics
    ----------- ----------- ---------- ---------- ----------
    Metric Name Metric Unit    Minimum    Maximum    Average
    ----------- ----------- ---------- ---------- ----------
    Block Size                  128.00     128.00     128.00
    ----------- ----------- ---------- ---------- ----------

  copy (8, 1, 1)x(32, 1, 1), Device 0, CC 8.7, Invocations 1
    Section: GPU Speed Of Light Throughput
    ----------------- ----------- ------------ ------------ ------------
    Metric Name       Metric Unit      Minimum      Maximum      Average
    ----------------- ----------- ------------ ------------ ------------
    Duration                   us         9.00         9.00         9.00
    ----------------- ----------- ------------ ------------ ------------
"""


def test_a_summary_by_kernel_is_as_many_launches_of_their_mean(tmp_path):
    path = tmp_path / "per_kernel.txt"
    path.write_text(PER_KERNEL)
    trace = pp.load(path)
    lasted = [metric(trace, launch, "gpu__time_duration.sum") for launch in range(4)]
    assert lasted == [(1.75, "ms")] * 3 + [(9, "us")]
    assert metric(trace, 0, "launch__block_size") == (128, None)
