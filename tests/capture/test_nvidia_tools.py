"""nsys and ncu, played by small shell scripts that take the same options."""

import json
import os
import re

import pytest

from pinchpoint.capture.launch import nvidia
from pinchpoint.capture.launch.nvidia import (
    Tool,
    find,
    function_name,
    may_profile,
    name_pattern,
    profile,
    refusal,
    require,
    under_nsys,
)
from pinchpoint.capture.settings import Settings
from pinchpoint.cli import main
from pinchpoint.cli.programs.ncu import separate
from pinchpoint.errors import MeasurementInvalid, UsageError

NSYS = """#!/bin/sh
[ "$1" = --version ] && echo "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0" && exit
case "$*" in *metrics-devices=help*) echo "   all: Select all supported GPUs"; exit;; esac
for word; do case "$word" in --output=*) out="${word#--output=}";; esac; done
while [ "${1#-}" != "$1" ] || [ "$1" = profile ]; do shift; done
"$@"; code=$?
echo report > "$out.nsys-rep"
exit $code
"""
NCU = """#!/bin/sh
[ "$1" = --version ] && echo "Version 2025.3.1.0 (build 36398880)" && exit
echo "$@" > "$FAKE_NCU_SAW"
echo "==PROF== Connected to process 1"
[ -n "$FAKE_NCU_SAYS" ] && echo "$FAKE_NCU_SAYS" && exit 1
for word; do case "$word" in --export=*) echo rep > "${word#--export=}";; esac; done
"""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A path with both tools in front of everything else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("nsys", NSYS), ("ncu", NCU)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(nvidia, "_FOLDERS", {"nsys": (), "ncu": ()})
    monkeypatch.setenv("FAKE_NCU_SAW", str(tmp_path / "saw"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def no_tools(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia, "_FOLDERS", {"nsys": (), "ncu": ()})
    monkeypatch.setattr(nvidia.shutil, "which", lambda name: None)


def test_tools_are_found_with_their_version(tools):
    assert find("nsys") == Tool(tools / "nsys", (2025, 3, 1, 90))
    assert find("ncu").version == (2025, 3, 1, 0)


@pytest.mark.parametrize("name", ["nsys", "ncu"])
def test_a_missing_tool_is_said_with_the_way_to_get_it(no_tools, name):
    with pytest.raises(UsageError, match=f"{name} is not installed") as caught:
        require(name)
    assert "nsight-" in caught.value.hint


def test_run_with_nsys_missing_starts_nothing(no_tools, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("print('started')")
    assert main(["run", "--nsys", "-o", "out", "s.py"]) == 2
    out, err = capfd.readouterr()
    assert "started" not in out
    assert "nsys is not installed" in err
    assert not (tmp_path / "out").exists()


def test_run_with_nsys_keeps_output_exit_code_and_report(tools, tmp_path, capfd):
    (tmp_path / "s.py").write_text("import sys; print('hello'); sys.exit(5)")
    assert main(["run", "--nsys", "--no-diagnose", "-o", "out", "s.py"]) == 5
    assert capfd.readouterr().out == "hello\n"
    assert (tmp_path / "out/nsys/report.nsys-rep").exists()
    run = json.loads((tmp_path / "out/run.json").read_text())
    assert run["problems"] == []
    assert run["command"][-1] == "s.py"  # the program's command, not nsys's


def test_only_the_steady_steps_are_captured(tmp_path):
    words = under_nsys(["python", "t.py"], Tool(tmp_path / "nsys", (2025, 1)), tmp_path)
    assert "--capture-range=cudaProfilerApi" in words
    assert "--cuda-graph-trace=node" in words
    assert words[-2:] == ["python", "t.py"]
    old = under_nsys(["python"], Tool(tmp_path / "nsys", (2021, 5)), tmp_path)
    assert "--cuda-graph-trace=node" not in old


def test_nsys_is_asked_for_memory_libraries_and_metrics(tools, tmp_path):
    words = under_nsys(["python", "t.py"], find("nsys"), tmp_path)
    assert "--trace=cuda,nvtx,osrt,cudnn,cublas" in words
    assert "--cuda-memory-usage=true" in words
    assert "--gpu-metrics-devices=all" in words


def test_metrics_that_may_not_be_sampled_are_not_asked_for(tools, tmp_path):
    (tools / "nsys").write_text(NSYS.replace("all: Select", "Insufficient privilege"))
    assert "--gpu-metrics-devices=all" not in under_nsys(["python"], find("nsys"), tmp_path)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, A<float>>(int, A)",
            "vectorized_elementwise_kernel",
        ),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNN", "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNN"),
        ("void (anonymous namespace)::softmax<float, (int)2>(float*)", "softmax"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_kernels_are_matched_by_their_function(kernel, name):
    assert function_name(kernel) == name


def test_collectives_are_never_replayed():
    assert not may_profile(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"
    )
    assert may_profile("void gemm<float>(float*)")


def test_ncu_gets_the_kernels_and_the_range(tools, tmp_path):
    (tmp_path / "ncu").mkdir()
    settings = Settings(str(tmp_path), tool="nsys")
    report = profile(["python", "t.py"], ["void gemm<float>(int)", "relu"], find("ncu"), settings)
    assert report == tmp_path / "ncu/kernels.ncu-rep"
    saw = (tmp_path / "saw").read_text()
    name = next(word for word in saw.split("--") if word.startswith("kernel-name=regex:"))
    pattern = re.compile(name.removeprefix("kernel-name=regex:").strip())
    assert pattern.match("void gemm<float>(int)")
    assert pattern.match("relu")
    assert not pattern.match("void gemm<double>(int)")
    assert "--profile-from-start=off" in saw
    assert "--filter-mode=per-launch-config" in saw
    assert "--launch-count=1" in saw


@pytest.mark.parametrize(
    "spelt",
    [
        "void (anonymous namespace)::softmax<float, (int)2>(float*)",
        "void <unnamed>::softmax<float, 2>(float *)",
        "softmax<float, (int)2>(float*)",
    ],
)
def test_a_whole_name_is_found_however_a_tool_spells_it(spelt):
    pattern = name_pattern("void (anonymous namespace)::softmax<float, 2>(float*)")
    assert re.match(f"{nvidia._BEFORE}(?:{pattern})$", spelt)
    assert not re.match(f"{nvidia._BEFORE}(?:{pattern})$", spelt.replace("float", "half"))


def test_forbidden_counters_are_said_plainly(tools, tmp_path, monkeypatch):
    (tmp_path / "ncu").mkdir()
    monkeypatch.setenv("FAKE_NCU_SAYS", "==ERROR== ERR_NVGPUCTRPERM - no permission")
    with pytest.raises(MeasurementInvalid, match="may not read the device's performance counters"):
        profile(["t"], ["gemm"], find("ncu"), Settings(str(tmp_path), tool="nsys"))


def test_refusals_in_plain_words():
    assert "another profiler" in refusal(
        "==ERROR== Profiling failed because a driver resource was unavailable."
    )
    assert refusal("all is well") is None


@pytest.mark.parametrize(
    ("words", "separated"),
    [
        (["RUN"], ["--", "RUN"]),
        (
            ["--top", "3", "RUN", "python", "t.py", "-o"],
            ["--top", "3", "--", "RUN", "python", "t.py", "-o"],
        ),
        (["RUN", "--", "python"], ["--", "RUN", "python"]),
        (["RUN", "--top", "3"], ["--top", "3", "--", "RUN"]),
        (
            ["RUN", "--top=3", "python", "t.py", "--top", "9"],
            ["--top=3", "--", "RUN", "python", "t.py", "--top", "9"],
        ),
    ],
)
def test_the_commands_words_stay_its_own(words, separated):
    assert separate(words) == separated
