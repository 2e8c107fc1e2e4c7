import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.transfers.host_memory_waits import check
from pinchpoint.trace import DeviceKind, MemoryKind

MS = 1_000_000
HOST, DEVICE = MemoryKind.PINNED, MemoryKind.DEVICE
GB = 10**9


def steps_of(*copies, compiled=True, devices=1, start_ms=2, called=False):
    """Ten steps of 10 ms: 2 ms of computing, then copies (from, to, ms), each of 1 GB."""
    built = TraceBuilder()
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        for device in range(devices):
            begun = at + start_ms * MS
            if compiled:
                row = {"start_ns": at, "duration_ns": start_ms * MS, "device": device}
                built.add("compiled_ops", op="fusion.3", **row)
            for source, target, lasts in copies:
                ends = {"from_memory": source, "to_memory": target, "bytes": GB}
                row = {"start_ns": begun, "duration_ns": lasts * MS, "device": device, **ends}
                if called:
                    row |= {"api_call": 0}
                built.add("device_ops", name="Memcpy", kind=DeviceKind.COPY, stream=1, **row)
                begun += lasts * MS
    return built.trace()


@pytest.mark.parametrize("devices", [1, 3])
def test_both_directions_are_one_finding_of_one_device(devices):
    (found,) = check(steps_of((HOST, DEVICE, 5), (DEVICE, HOST, 1), devices=devices))
    assert found.cost_ns_per_step == 6 * MS
    assert found.saving_ns_per_step == (3 * MS, 6 * MS)
    assert {e.what: e.value for e in found.evidence} == {
        "waiting": 6 * MS,
        "of that for copies to the host": MS,
        "copied to the device": GB,
        "copied to the host": GB,
    }


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(steps_of((DEVICE, DEVICE, 5)), id="within the device"),
        pytest.param(steps_of((HOST, DEVICE, 0)), id="hidden: nothing waits"),
        pytest.param(steps_of((HOST, DEVICE, 5), compiled=False), id="no compiled program"),
        pytest.param(TraceBuilder().trace(), id="nothing"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []
