import json

import pytest

from pinchpoint.capture import doctor
from pinchpoint.cli import main

TORCH = {"version": "2.13.0", "cuda": "13.0", "hip": None, "available": True, "devices": 1}
TORCH |= {"kineto": True, "activities": ["CPU", "CUDA"]}


def env(driver="580.1", cuda="13.0", devices=({"name": "H100"},)):
    gpu = {"driver": driver, "cuda_driver": cuda, "devices": list(devices)}
    return {"gpu": gpu, "unknown": {"gpu.devices": "no driver"}}


def states(checks):
    return {check.name: check.state for check in checks}


def test_a_machine_that_fits_together():
    found = list(doctor._driver(env(), TORCH))
    assert states(found) == {"GPU": "ok"}


def test_a_driver_that_is_too_old_for_torch_is_a_problem_with_a_fix():
    found = list(doctor._driver(env(cuda="12.4"), TORCH))
    assert states(found)["driver and torch"] == "problem"
    assert "install torch for CUDA 12" in found[-1].fix


def test_devices_that_torch_does_not_see():
    found = list(doctor._driver(env(), TORCH | {"available": False}))
    assert states(found)["driver and torch"] == "problem"


def test_no_device_is_a_note():
    assert states(doctor._driver(env(devices=()), TORCH)) == {"GPU": "note"}


@pytest.mark.parametrize(
    ("params", "capable", "state"),
    [
        ("RmProfilingAdminOnly: 0", False, "ok"),
        ("RmProfilingAdminOnly: 1", True, "ok"),
        ("RmProfilingAdminOnly: 1", False, "problem"),
    ],
)
def test_who_may_read_kernel_counters(tmp_path, monkeypatch, params, capable, state):
    (tmp_path / "params").write_text(params)
    monkeypatch.setattr(doctor, "_ADMIN_ONLY", tmp_path / "params")
    monkeypatch.setattr(doctor, "_capable", lambda: capable)
    assert states(doctor._kernel_counters()) == {"kernel counters (ncu)": state}


def test_blocking_launches_are_a_problem(monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert states(doctor._variables())["CUDA_LAUNCH_BLOCKING"] == "problem"


def test_torch_that_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(doctor, "_PROBE", "raise ImportError('libcudart.so.13: not found')")
    found = list(doctor._framework(doctor.probe_torch()))
    assert states(found)["torch"] == "problem"
    assert "libcudart" in found[0].found


def test_the_command_answers_in_both_forms(monkeypatch, capsysbinary):
    monkeypatch.setattr(doctor, "probe_torch", lambda: {"error": "No module named 'torch'"})
    assert main(["doctor", "--json"]) == 0
    checks = json.loads(capsysbinary.readouterr().out)["checks"]
    assert {"python", "torch", "disk"} <= {check["name"] for check in checks}
    assert main(["doctor"]) == 0
    assert b"not installed for this Python" in capsysbinary.readouterr().out
