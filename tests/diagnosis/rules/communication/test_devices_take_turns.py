import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.communication.devices_take_turns import check
from pinchpoint.trace import Device


def steps_on(devices, *, each_ns, together=False, late_ns=0):
    """Ten steps whose kernels run on one device after the other, or on all at once."""
    built = TraceBuilder(devices=[Device(number, "NVIDIA H100") for number in range(devices)])
    at = 0
    for number in range(10):
        begun = at
        for device in range(devices):
            built.launch(
                at=begun + 10 * device,
                takes=5,
                kernel="sm90_gemm",
                runs_at=at + late_ns,
                for_ns=each_ns,
                device=device,
            )
            at += 0 if together else each_ns + late_ns
        at += each_ns + late_ns if together else 0
        built.step(number, begun, at - begun)
    return built.trace()


def test_four_devices_in_turn_could_take_a_quarter():
    (found,) = check(steps_on(4, each_ns=5_000_000))
    assert "4 devices work one after the other" in found.summary
    assert [e.value for e in found.evidence] == [pytest.approx(0.75, abs=0.001)] * 4
    least, most = found.saving_ns_per_step
    assert most == pytest.approx(15_000_000, rel=0.01)  # all but the busiest
    assert least == pytest.approx(11_250_000, rel=0.01)  # 4 micro-batches: 7/4 of 5 ms
    assert found.leaves_ns_per_step == pytest.approx(5_000_000, rel=0.01)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(steps_on(1, each_ns=5_000_000), id="one device"),
        pytest.param(steps_on(4, each_ns=5_000_000, together=True), id="all at once"),
        pytest.param(steps_on(4, each_ns=1_000_000, late_ns=5_000_000), id="the host is late"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []
