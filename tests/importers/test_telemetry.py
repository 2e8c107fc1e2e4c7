from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.telemetry import dcgm, dmon, smi
from pinchpoint.importers.telemetry import log as telemetry_log
from pinchpoint.monitor.sample import Sample
from pinchpoint.monitor.telemetry import TelemetryLog

DATA = Path(__file__).parents[1] / "data"


def series(trace, name, device=0):
    counters = trace.counters
    rows = [
        i
        for i in range(len(counters))
        if trace.text(counters, "name", i) == name and counters.value("device", i) == device
    ]
    return counters["time_ns"][rows].tolist(), counters["value"][rows].tolist()


def details(trace):
    return [trace.text(trace.health, "detail", i) for i in range(len(trace.health))]


def written(tmp_path, text, name="log.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_recorded_query_log():
    trace = pp.load(DATA / "nvidia-smi/nvidia-smi.csv")
    times, clocks = series(trace, "sm_clock_mhz")
    assert trace.source.format == "nvidia-smi CSV"
    assert trace.devices[0].name == "NVIDIA H100 80GB HBM3"
    assert len(times) == 50
    assert times[:2] == [0, 210_000_000]
    assert clocks[:3] == [1980, 1440, 1455]
    assert series(trace, "event_reasons")[1][:2] == [0, 4]
    assert series(trace, "memory_used_bytes")[1][0] == 1699 * 2**20
    assert series(trace, "any_kernel_ratio")[1][1] == pytest.approx(0.89)
    assert trace.origin_ns is None


def test_a_recorded_dmon_log():
    trace = pp.load(DATA / "nvidia-smi/dmon.log")
    times, watts = series(trace, "power_w")
    assert trace.source.format == "nvidia-smi dmon"
    assert times == [i * 10**9 for i in range(10)]
    assert watts[:3] == [146, 716, 704]
    assert series(trace, "sm_clock_mhz")[1][1] == 1305
    assert series(trace, "power_capped_ratio")[1][1] == 1.0


def test_what_nvidia_smi_cannot_tell_is_left_out_and_counted(tmp_path):
    text = "timestamp, index, fan.speed [%], power.draw [W]\n" + "".join(
        f"2026/11/27 21:38:0{i}.000, 0, [N/A], 1{i}.5 W\n" for i in range(3)
    )
    trace = pp.load(written(tmp_path, text))
    assert series(trace, "power_w")[1] == [10.5, 11.5, 12.5]
    assert series(trace, "fan.speed")[1] == []
    assert details(trace) == ["fan.speed: 3 samples without a value"]


def test_values_without_units_and_devices_known_by_uuid(tmp_path):
    text = (
        "timestamp, uuid, memory.used [MiB]\n"
        "2026/11/27 21:38:00.000, GPU-b, 1\n2026/11/27 21:38:00.000, GPU-a, 2\n"
        "2026/11/27 21:38:01.000, GPU-b, 3\n"
    )
    trace = pp.load(written(tmp_path, text))
    assert series(trace, "memory_used_bytes", 0)[1] == [2**20, 3 * 2**20]
    assert series(trace, "memory_used_bytes", 1)[1] == [2 * 2**20]


@pytest.mark.parametrize(
    "time", ["2026-11-27T21:38:0{}+01:00", "2026-11-27T20:38:0{}", "179581188{}.5"]
)
def test_times_that_scripts_put_before_the_values(tmp_path, time):
    rows = "".join(f"{time.format(second)},1, 40, 512\n" for second in (1, 3))
    trace = pp.load(written(tmp_path, "timestamp,gpu,utilization.gpu,memory.used\n" + rows))
    times, values = series(trace, "any_kernel_ratio", 1)
    assert values == [0.4, 0.4]
    assert times[1] - times[0] == 2 * 10**9


@pytest.mark.parametrize(
    ("days", "apart"),
    [
        (("03-11-2026", "03-12-2026"), 1),  # month first: as the other, a month lies between
        (("11/03/2026", "12/03/2026"), 1),  # day first, likewise
        (("31.12.2026", "01.01.2027"), 1),
        (("03-11-2026", "03-11-2026"), 0),
    ],
)
def test_where_the_year_stands_last_the_shorter_log_is_taken(tmp_path, days, apart):
    rows = "".join(f"{day} 15:13:16, Orin, 99\n" for day in days)
    trace = pp.load(written(tmp_path, "timestamp, name, utilization.gpu [%]\n" + rows))
    times, _ = series(trace, "any_kernel_ratio")
    assert times[1] - times[0] == apart * 86_400 * 10**9
    assert trace.devices[0].name == "Orin"


def test_a_killed_loggers_last_line_and_messages_are_no_samples(tmp_path):
    text = (
        "timestamp, index, power.draw [W]\n2026/11/27 21:38:00.000, 0, 10 W\n"
        "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.\n"
        "2026/11/27 21:38:0"
    )
    trace = pp.load(written(tmp_path, text))
    assert len(trace.counters) == 1
    assert trace.source.truncated
    assert details(trace) == ["2 lines are cut off or hold a message"]


def test_a_log_without_samples_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="no sample after it"):
        pp.load(written(tmp_path, "timestamp, index, power.draw [W]\n"))


def test_dmon_repeats_its_header_and_leaves_dashes(tmp_path):
    text = (
        "# gpu   pwr gtemp\n# Idx     W     C\n    0   100     -\n    1   200    40\n"
        "# gpu   pwr gtemp\n# Idx     W     C\n    0   110    41\n    1   2"
    )
    trace = pp.load(written(tmp_path, text, "dmon.txt"))
    assert series(trace, "power_w", 0)[1] == [100, 110]
    assert series(trace, "power_w", 1)[1] == [200]
    assert series(trace, "temperature_c", 0)[1] == [41]
    assert "rows have no time: only their order is known" in details(trace)


def test_dmon_with_date_and_commas_and_across_midnight(tmp_path):
    dated = "#Date, Time, gpu, pwr\n#YYYYMMDD, HH:MM:SS, Idx, W\n"
    dated += "20261127, 23:59:59, 0, 5\n20261128, 00:00:01, 0, 6\n"
    assert series(pp.load(written(tmp_path, dated)), "power_w") == ([0, 2 * 10**9], [5, 6])
    undated = "#Time gpu pwr\n#HH:MM:SS Idx W\n 23:59:59 0 5\n 00:00:01 0 6\n"
    assert series(pp.load(written(tmp_path, undated)), "power_w") == ([0, 2 * 10**9], [5, 6])


SCRAPE = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H100 80GB HBM3"} 1305
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA H100 80GB HBM3"} 1980
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1"} 0.964
DCGM_FI_PROF_DRAM_ACTIVE_RATIO{gpu="0",UUID="GPU-1"} 0.243
# TYPE DCGM_FI_PROF_PCIE_RX_BYTES counter
DCGM_FI_PROF_PCIE_RX_BYTES{gpu="0",UUID="GPU-1"} 123456
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-1"} 9223372036854775794
"""


def test_a_scrape_of_the_dcgm_exporter(tmp_path):
    trace = pp.load(written(tmp_path, SCRAPE, "metrics.txt"))
    assert trace.source.format == "DCGM exporter text"
    assert series(trace, "sm_clock_mhz", 0)[1] == [1305]
    assert series(trace, "sm_clock_mhz", 1)[1] == [1980]
    assert series(trace, "sm_active_ratio")[1] == [0.964]
    assert series(trace, "dram_active_ratio")[1] == [0.243]
    assert series(trace, "memory_temperature_c")[1] == []
    assert series(trace, "DCGM_FI_PROF_PCIE_RX_BYTES")[1] == [123456]  # a total, not a rate
    assert trace.devices[0].name == "NVIDIA H100 80GB HBM3"


LABELS = (
    'gpu="0", UUID="GPU-1", pci_bus_id="00000000:0D:00.0", device="nvidia0"'
    ', modelName="NVIDIA, L40S",Hostname="node"'
    ',DCGM_FI_DRIVER_VERSION="580.126.09",container="",namespace="",pod=""'
)


def scraped(tmp_path, *lines):
    """A scrape with one field a line: ``NAME VALUE``."""
    text = "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n"
    for line in lines:
        name, _, value = line.partition(" ")
        text += f"DCGM_FI_{name}{{{LABELS}}} {value}\n"
    return pp.load(written(tmp_path, text, "metrics.txt"))


@pytest.mark.parametrize(
    ("line", "metric", "values"),
    [
        ("DEV_FB_USED 1024", "memory_used_bytes", [2**30]),
        ("DEV_GPU_UTIL 73", "any_kernel_ratio", [0.73]),
        # names and units of DCGM 4.7
        ("DEV_GPU_UTIL_RATIO 0.73", "any_kernel_ratio", [0.73]),
        ("DEV_FB_USED_BYTES 1073741824", "memory_used_bytes", [2**30]),
        ("DEV_SM_CLOCK_HERTZ 1.98e+09", "sm_clock_mhz", [1980]),
        ("PROF_TENSOR_UTIL_RATIO 0.5", "tensor_active_ratio", [0.5]),
        ("DEV_BOARD_POWER_WATTS 310.6", "power_w", [310.6]),
        # what is not known
        ("DEV_GPU_TEMP NaN", "temperature_c", []),
        ("DEV_GPU_TEMP +Inf", "temperature_c", []),
        ("DEV_GPU_TEMP 2147483634", "temperature_c", []),
        ("DEV_POWER_USAGE 140737488355330", "power_w", []),
        ("DEV_MEMORY_TEMP 9223372036854775794", "memory_temperature_c", []),
    ],
)
def test_fields_units_and_blanks_of_the_dcgm_exporter(tmp_path, line, metric, values):
    trace = scraped(tmp_path, "DEV_MEM_CLOCK 2619", line)
    assert series(trace, metric)[1] == pytest.approx(values)
    assert series(trace, "memory_clock_mhz")[1] == [2619]
    assert trace.devices[0].name == "NVIDIA, L40S"


def test_a_field_without_a_value_is_a_torn_line_and_an_indented_one_is_read(tmp_path):
    trace = scraped(tmp_path, "DEV_MEM_CLOCK 2619", "DEV_GPU_TEMP ")
    assert series(trace, "temperature_c")[1] == []
    assert any("cut off" in d for d in details(trace))
    trace = pp.load(written(tmp_path, f"   DCGM_FI_DEV_MEM_CLOCK{{{LABELS}}} 1\n", "m.txt"))
    assert series(trace, "memory_clock_mhz")[1] == [1]


def test_a_slice_is_not_taken_for_the_device(tmp_path):
    text = 'DCGM_FI_PROF_SM_ACTIVE{gpu="0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.5\n'
    text += 'DCGM_FI_PROF_SM_ACTIVE{gpu="0",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1"} 0.9\n'
    trace = pp.load(written(tmp_path, text, "metrics.txt"))
    assert series(trace, "sm_active_ratio")[1] == []
    assert series(trace, "sm_active_ratio of slice 7")[1] == [0.5]


def test_scrapes_one_after_another_keep_their_order(tmp_path):
    trace = pp.load(written(tmp_path, SCRAPE + SCRAPE.replace("1305", "1400"), "metrics.txt"))
    assert series(trace, "sm_clock_mhz", 0) == ([0, 1], [1305, 1400])
    assert any("no time" in d for d in details(trace))


def test_our_own_log_comes_back_as_written(tmp_path):
    log = TelemetryLog(tmp_path / "telemetry.csv")
    log.add(
        [Sample(10**18, "0", {"power_w": 692.25, "event_reasons": 4}), Sample(10**18, None, {})]
    )
    log.add(
        [
            Sample(10**18 + 5, "0/1", {"sm_active_ratio": 0.5}),
            Sample(10**18 + 5, None, {"cpu_ratio": 0.25}),
        ]
    )
    log.close()
    trace = pp.load(tmp_path / "telemetry.csv")
    assert trace.origin_ns == 10**18
    assert series(trace, "power_w") == ([0], [692.25])
    assert series(trace, "sm_active_ratio of slice 1") == ([5], [0.5])
    assert series(trace, "cpu_ratio", None) == ([5], [0.25])


@pytest.mark.parametrize(
    "garbage", [b"\xff\xfe\x00junk", b"a" * 300_000, b"1,2,3,4\n" * 10, b"0x" + b"f" * 9000]
)
@pytest.mark.parametrize(
    ("importer", "header"),
    [
        (smi, b"timestamp, index, power.draw [W]\n"),
        (dmon, b"# gpu pwr\n"),
        (dcgm, b"# TYPE DCGM_FI_X gauge\n"),
        (telemetry_log, b"unix_ns,device,power_w\n"),
    ],
)
def test_rubbish_ends_in_one_clear_error(tmp_path, importer, header, garbage):
    path = tmp_path / "log"
    path.write_bytes(header + garbage)
    with pytest.raises(UnreadableFile):
        importer.read(path)


def test_every_sample_has_a_finite_value():
    for name in ("nvidia-smi.csv", "dmon.log"):
        assert np.isfinite(pp.load(DATA / "nvidia-smi" / name).counters["value"]).all()


YEAR_9999 = "timestamp, index, utilization.gpu [%]\n9999/01/01 00:00:00.000, 0, 5 %\n"


def test_a_log_of_a_year_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="times or devices that no machine has") as caught:
        pp.load(written(tmp_path, YEAR_9999))
    assert caught.value.hint


@pytest.mark.parametrize(
    "row", ["9999/01/01 00:00:00.000, 0, 5 %", "0001/01/01 00:00:00.000, 0, 5 %"]
)
def test_samples_out_of_all_time_are_left_out_and_said(tmp_path, row):
    text = YEAR_9999.replace("9999", "2026") + f"{row}\n2026/01/01 00:00:01.000, 0, 7 %\n"
    trace = pp.load(written(tmp_path, text))
    assert series(trace, "any_kernel_ratio") == ([0, 10**9], [0.05, 0.07])
    assert details(trace) == [
        "1 samples have times or devices that no machine has, and were left out"
    ]


def test_a_value_that_overflows_is_no_value(tmp_path):
    text = "timestamp, index, memory.used [MiB]\n2026/01/01 00:00:00.000, 0, 1e308 MiB\n"
    text += "2026/01/01 00:00:01.000, 0, 1 MiB\n"
    assert series(pp.load(written(tmp_path, text)), "memory_used_bytes") == ([0], [2.0**20])


BOXES = """\
Wed Apr  9 10:26:15 2025
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.183.01             Driver Version: 535.183.01   CUDA Version: 12.2     |
|=========================================+======================+======================|
|   0  NVIDIA GeForce RTX 3090        Off | 00000000:04:00.0 Off |                  N/A |
| 30%   22C    P8              13W / 350W |  1024MiB / 24576MiB |      0%      Default |
|                                         |                      |                  N/A |
+-----------------------------------------+----------------------+----------------------+
|   3  Tesla V100-PCIE...          On     | 00000000:0B:00.0 Off |                    0 |
| N/A   58C    P2             267W / 350W |  2048MiB / 24576MiB |     83%      Default |
+-----------------------------------------+----------------------+----------------------+
| Processes:                                                                            |
|    0   N/A  N/A      4711      C   python                                     1020MiB |
"""


def test_boxes_that_nvidia_smi_prints_are_looks_at_devices(tmp_path):
    later = BOXES.replace("10:26:15", "10:26:45").replace(" 83%", "  7%")
    trace = pp.load(written(tmp_path, "nohup: ignoring input\n" + BOXES + later, "gpu_log.txt"))
    assert trace.source.format == "nvidia-smi table"
    assert [(d.number, d.name) for d in trace.devices] == [
        (0, "NVIDIA GeForce RTX 3090"),
        (3, "Tesla V100-PCIE"),
    ]
    times, ratios = series(trace, "any_kernel_ratio", 3)
    assert ratios == pytest.approx([0.83, 0.07])
    assert times[1] - times[0] == 30 * 10**9
    assert series(trace, "memory_used_bytes", 0)[1] == [2**30, 2**30]
    assert series(trace, "power_limit_w", 3)[1] == [350, 350]


def test_boxes_dated_by_half_days_and_without_a_date(tmp_path):
    dated = BOXES.replace("Wed Apr  9 10:26:15 2025", "Wed Feb 26 01:50:18 PM EST 2025")
    later = dated.replace("01:50:18", "01:50:28")
    trace = pp.load(written(tmp_path, dated + later))
    assert np.diff(series(trace, "power_w", 0)[0]).tolist() == [10**10]
    alone = BOXES.partition("\n")[2]
    trace = pp.load(written(tmp_path, alone + alone))
    assert len(series(trace, "power_w", 0)[1]) == 2
    assert "telemetry-without-time" in [trace.names[f] for f in trace.health["fact"].tolist()]


def test_boxes_before_the_lines_of_a_program_are_not_what_the_file_is(tmp_path):
    """A script of a cluster prints them once a job; the rest is the log."""
    lines = "".join(f"step {n} loss 2.{n} time 0.{n}5 s\n" for n in range(40))
    for text in (BOXES + lines, BOXES + lines + BOXES + lines):
        assert pp.load(written(tmp_path, text, "slurm.out")).source.format == "program log"
    few = pp.load(written(tmp_path, BOXES + lines[:150], "slurm.out"))
    assert few.source.format == "program log"
    with pytest.raises(UnreadableFile, match="tables of nvidia-smi"):
        pp.load(written(tmp_path, BOXES + BOXES + "done\n" * 60, "slurm.out"))


def test_a_damaged_line_of_a_box_takes_no_time(tmp_path):
    """With cells of anything, a line of bars and slashes was cut in ever more ways."""
    first, _, others = BOXES.partition("W / ")
    text = first + "W / " + "/|MiB/MiB|" * 2000 + "\n" + others + BOXES
    ratios = series(pp.load(written(tmp_path, text)), "any_kernel_ratio", 3)[1]
    assert ratios == pytest.approx([0.83, 0.83])


def test_a_title_of_nvidia_smi_without_devices_is_refused(tmp_path):
    with pytest.raises(UnreadableFile, match="without a device"):
        pp.load(written(tmp_path, "| NVIDIA-SMI 535.183.01 |\n"))
    with pytest.raises(UnreadableFile, match="one look at devices"):
        pp.load(written(tmp_path, BOXES))


def test_the_hole_of_a_log_that_was_emptied_is_left_out(tmp_path):
    hole = "\0" * 100_000
    text = f"index, memory.used [MiB]\n{hole}0, 5 MiB\n{hole}0, 6 MiB\n"
    trace = pp.load(written(tmp_path, text))
    assert [device.number for device in trace.devices] == [0]
    assert series(trace, "memory_used_bytes", 0)[1] == [5 * 2**20, 6 * 2**20]


def test_what_a_script_printed_before_the_header_is_passed_over(tmp_path):
    text = BOXES + "index, memory.used [MiB]\n0, 5 MiB\n0, 6 MiB\n"
    trace = pp.load(written(tmp_path, text))
    assert trace.source.format == "nvidia-smi CSV"
    assert series(trace, "memory_used_bytes", 0)[1] == [5 * 2**20, 6 * 2**20]


BOARD = (
    "10-01-2025 20:05:{:02d} RAM 2000/6000MB (lfb 27x4MB) SWAP 500/3000MB (cached 2MB)"
    " CPU [100%@1190,50%@1190,off,off] EMC_FREQ 0% GR3D_FREQ {}%@[1109] GPU@38.5C PMIC@50C"
    " VDD_IN {}mW/5500mW VDD_SOC 1000mW/900mW\n"
)
JETSON = "".join(BOARD.format(at, 20 * at, 5000 + at) for at in range(1, 4))


def test_a_log_of_a_jetson(tmp_path):
    trace = pp.load(written(tmp_path, JETSON, "tegrastats.log"))
    assert trace.source.format == "tegrastats"
    times, busy = series(trace, "any_kernel_ratio")
    assert times == [0, 10**9, 2 * 10**9]
    assert busy == pytest.approx([0.2, 0.4, 0.6])
    assert series(trace, "power_w")[1] == pytest.approx([5.001, 5.002, 5.003])
    assert series(trace, "sm_clock_mhz")[1] == [1109] * 3
    assert series(trace, "temperature_c")[1] == [38.5] * 3
    assert series(trace, "cpu_ratio", None)[1] == [0.75] * 3
    assert series(trace, "host_memory_used_bytes", None)[1] == [2000 * 2**20] * 3


def test_of_an_older_jetson_only_the_order_is_known(tmp_path):
    line = "RAM 2000/6000MB (lfb 27x4MB) CPU [10%@1190,off] GR3D 7%@500 VDD_IN 5000/5500\n"
    trace = pp.load(written(tmp_path, 2 * line, "tegrastats.log"))
    assert series(trace, "any_kernel_ratio") == ([0, 1], pytest.approx([0.07, 0.07]))
    assert any("only their order" in detail for detail in details(trace))
    with pytest.raises(UnreadableFile, match="one look"):
        pp.load(written(tmp_path, line, "once.log"))
