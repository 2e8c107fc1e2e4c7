import json
import sys
from types import SimpleNamespace

import pytest

from pinchpoint.monitor.environment import environment, redacted_command
from pinchpoint.monitor.environment.facts import variables
from pinchpoint.monitor.environment.gpus import gpus
from pinchpoint.monitor.environment.host import _ranges


def _nulls(value, path=""):
    if value is None:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _nulls(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _nulls(inner, f"{path}.{i}")


def _explained(path, unknown):
    parts = path.split(".")
    return any(".".join(parts[:i]) in unknown for i in range(1, len(parts) + 1))


def test_every_null_has_a_reason():
    record = environment()
    known_shape = {k: v for k, v in record.items() if k != "unknown"}
    known_shape["software"] = {k: v for k, v in record["software"].items() if k != "torch_build"}
    assert [p for p in _nulls(known_shape) if not _explained(p, record["unknown"])] == []


def test_survives_json():
    record = environment()
    assert json.loads(json.dumps(record)) == record


@pytest.mark.parametrize("says", [True, False])
def test_software_is_that_of_the_program(says, tmp_path):
    """Another Python, which this environment's packages do not reach."""
    python = tmp_path / "python3"
    if says:
        python.symlink_to(sys.executable)
    else:
        python.write_text("#!/bin/sh\nexit 1\n")
        python.chmod(0o755)
    record = environment(program=(str(python), "train.py"))
    if says:
        assert record["software"]["python"] == environment()["software"]["python"]
        assert "torch" not in record["software"]["distributions"]
    else:
        assert record["software"] == {}
        assert record["unknown"]["software"] == f"{python} did not say"


def test_does_not_import_torch(tmp_path):
    import subprocess

    code = (
        "import sys; from pinchpoint.monitor.environment import environment; environment();"
        "print('torch' in sys.modules, 'pinchpoint.trace' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["False", "False", "False"]


def test_values_of_secrets_are_never_written():
    environ = {
        "NCCL_DEBUG": "INFO",
        "TORCH_HUB_TOKEN": "abc",
        "HF_TOKEN": "abc",
        "JAX_PROXY": "http://me:abc@host",
        "HOME": "/home/abc",
    }
    shown = variables(environ)
    assert shown["names"] == sorted(environ)
    assert shown["values"] == {"NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(
            ["t.py", "--api-key", "abc"], ["t.py", "--api-key", "(withheld)"], id="option"
        ),
        pytest.param(["t.py", "--token=abc"], ["t.py", "--token=(withheld)"], id="equals"),
        pytest.param(["--auth", "--lr", "1"], ["--auth", "--lr", "1"], id="a flag hides nothing"),
        pytest.param(["s3://u:p@h/x"], ["s3://(withheld)@h/x"], id="address"),
    ],
)
def test_redacted_command(command, shown):
    assert redacted_command(command) == shown


def test_ranges():
    assert _ranges([0, 1, 2, 5]) == "0-2,5"


class _FakeNvml:
    """One H100 as nvidia-ml-py shows it, on a driver without MIG queries."""

    NVMLError = RuntimeError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __getattr__(self, name):
        answers = {
            "nvmlSystemGetDriverVersion": b"580.1",
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:18:00.0"),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=85_000_000_000),
            "nvmlDeviceGetPowerManagementLimit": 700_000,
            "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetNvLinkState": 1,
            "nvmlDeviceGetComputeRunningProcesses": [],
        }
        if name == "nvmlDeviceGetMigMode":
            return self._not_supported
        return lambda *_: answers.get(name, 0)

    def _not_supported(self, handle):
        raise RuntimeError("Not Supported")


def test_a_device_through_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", _FakeNvml())
    values, unknown = gpus()
    device = values["devices"][0]
    assert (values["driver"], values["cuda_driver"]) == ("580.1", "13.0")
    assert (device["name"], device["power_limit_w"], device["ecc"]) == (
        "NVIDIA H100 80GB HBM3",
        700.0,
        True,
    )
    assert device["nvlinks_active"] == 18
    assert device["mig"] is None
    assert "Not Supported" in unknown["gpu.devices.0.mig"]
