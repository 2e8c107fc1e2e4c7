from pinchpoint.monitor.environment import (
    differences,
    environment,
    fingerprint,
    full_fingerprint,
    refusals,
)


def _env(**gpu):
    device = {"name": "H100", "mig": False, "power_limit_w": 700.0, "ecc": True, "uuid": "a"} | gpu
    return {
        "gpu": {"count": 1, "driver": "580", "devices": [device]},
        "host": {"cpu_model": "EPYC", "governor": None, "load_1min": 0.1},
        "variables": {"values": {}},
        "unknown": {"host.governor": "no such file"},
    }


def _pairs(found):
    return {(d.path, d.action) for d in found}


def test_equal_environments_differ_in_nothing():
    assert differences(_env(), _env(), stored=True) == differences(_env(), _env(), stored=False)
    known = {"gpu.devices.*.name", "gpu.count", "host.cpu_model", "host.governor"}
    assert not known & {d.path for d in differences(_env(), _env(), stored=True)}


def test_another_power_limit_refuses():
    found = differences(_env(), _env(power_limit_w=500.0), stored=False)
    assert _pairs(refusals(found)) == {("gpu.devices.*.power_limit_w", "refuse")}


def test_another_gpu_of_the_same_model_warns():
    found = differences(_env(), _env(uuid="b"), stored=False)
    assert refusals(found) == ()
    assert ("gpu.devices.*.uuid", "warn") in _pairs(found)


def test_the_driver_refuses_only_against_a_stored_result():
    other = _env()
    other["gpu"]["driver"] = "590"
    assert _pairs(refusals(differences(_env(), other, stored=True))) == {("gpu.driver", "refuse")}
    assert refusals(differences(_env(), other, stored=False)) == ()
    assert refusals(differences(_env(), other, stored=True, knobs=["gpu.driver"])) == ()


def test_unknown_warns_and_is_not_equal():
    other = _env(ecc=None)
    other["unknown"]["gpu.devices.0.ecc"] = "Not Supported"
    [ecc] = [d for d in differences(_env(), other, stored=True) if d.path.endswith("ecc")]
    assert (ecc.action, ecc.why) == ("warn", "unknown in B")


def test_unknown_for_the_same_reason_is_the_machine():
    paths = {d.path for d in differences(_env(), _env(), stored=True)}
    assert "host.governor" not in paths
    other = _env()
    other["unknown"]["host.governor"] = "permission denied"
    paths = {d.path for d in differences(_env(), other, stored=True)}
    assert "host.governor" in paths


def test_launch_blocking_on_one_side_refuses():
    other = _env()
    other["variables"]["values"]["CUDA_LAUNCH_BLOCKING"] = "1"
    [found] = refusals(differences(_env(), other, stored=False))
    assert found.label == "CUDA_LAUNCH_BLOCKING"


def test_fingerprints():
    assert fingerprint(_env()) == fingerprint(_env(uuid="b"))
    assert fingerprint(_env()) != fingerprint(_env(power_limit_w=500.0))
    assert full_fingerprint(_env()) != full_fingerprint(_env(uuid="b"))
    busy = _env()
    busy["host"]["load_1min"] = 9.0
    assert full_fingerprint(_env()) == full_fingerprint(busy)


def test_this_machine_is_comparable_with_itself():
    assert differences(environment(), environment(), stored=True) == ()


def test_in_words():
    [found] = refusals(differences(_env(), _env(power_limit_w=500.0), stored=False))
    assert found.in_words() == "GPU power limit: 700.0 in A, 500.0 in B"
    other = _env()
    other["software"] = {"distributions": {"torch": "2.11", "numpy": "2.0"}}
    mine = _env() | {"software": {"distributions": {"torch": "2.13", "numpy": "2.0"}}}
    [found] = refusals(differences(mine, other, stored=True))
    assert found.in_words() == "installed versions: torch 2.13 in A, torch 2.11 in B"
