"""Transforms of lengths with large prime factors, on a device; milliseconds."""

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay import DropDeviceOps, LimitDeviceOps
from pinchpoint.trace import Device, DeviceKind
from program import Program

MS = 1_000_000

ROWS = 512


def transforming(length, *, values=True, ms=10.0, steps=6):
    """Steps of a real transform of ``length`` points and of its inverse, each in three kernels,
    and of 12 ms of other work."""
    half = length // 2 + 1
    there = {
        "shapes": [[ROWS, length], [], [], []],
        "dtypes": ["float", "ScalarList", "Scalar", "Scalar"],
    }
    back = {**there, "shapes": [[ROWS, half], [], [], []]}
    back["dtypes"] = ["c10::complex<float>", "ScalarList", "Scalar", "Scalar"]
    if values:
        there["values"] = ["", "[1]", "0", "True"]
        back["values"] = ["", "[1]", "2", str(length)]
    p = Program()
    for _ in p.steps(steps):
        with p.frame("reverb.py(80): reverberate"):
            for name, given in (("aten::_fft_r2c", there), ("aten::_fft_c2r", back)):
                with p.row(name, **given):
                    for _ in range(3):
                        p.kernel("transform_kernel", 1_000 * ms / 6)
        with p.row("aten::mm"):
            p.kernel("gemm", 12_000)
        p.sync()
    return p.trace()


def test_a_prime_length_is_told_with_the_next_fast_one(outcome, ranked):
    trace = transforming(199_999)
    (finding,) = outcome("fft-length", trace).findings
    assert finding.summary == (
        "Fourier transforms of length 199999, a prime, take 10.0 ms of the device's time a step"
        " in reverberate (reverb.py:80); 200000 is a fast length"
    )
    dropped, limited = finding.changes
    assert isinstance(dropped, DropDeviceOps)
    assert isinstance(limited, LimitDeviceOps)
    # 512 × 199,999 floats read and half as many complex ones written, in three passes each: 2.46
    # GB each way and transform, 0.73 ms at the 3.35 TB/s of an H100; good ones take 1.5 times that.
    assert limited.limit_ns.sum() / 5 == pytest.approx(2.2e6, rel=0.3)  # of the complete steps
    assert ranked(trace)[0] == "fft-length"


def test_a_multiple_of_a_large_prime_is_slow_as_well(outcome):
    (finding,) = outcome("fft-length", transforming(2 * 15_013)).findings
    assert "length 30026, a multiple of the prime 15013" in finding.summary


@pytest.mark.parametrize("length", [200_000, 2**17, 127 * 1024, 3**5 * 7 * 11 * 13])
def test_lengths_of_factors_that_libraries_have_passes_for_are_fine(outcome, length):
    assert outcome("fft-length", transforming(length)).answer == "clear"


def test_transforms_at_their_limit_are_no_finding(ranked):
    assert "fft-length" not in ranked(transforming(199_999, ms=1.2))


def test_a_transform_that_is_nearly_as_quick_keeps_its_time(outcome):
    """2 ms a step, where a good one takes 2.2."""
    (finding,) = outcome("fft-length", transforming(199_999, ms=2)).findings
    _, limited = finding.changes
    assert limited.limit_ns.sum() / 5 <= 2e6


def test_cannot_judge_without_lengths(outcome):
    assert outcome("fft-length", transforming(199_999, values=False)).answer == "not checked"


def compiled(length, *, size=40_000_000):
    """Ten steps of 10 ms: a transform of 4 ms that moves ``size`` bytes, and 5 ms of other work."""
    built = TraceBuilder(devices=(Device(0, "NVIDIA H100 80GB HBM3", vendor="nvidia"),))
    for number in range(10):
        at = number * 10 * MS
        built.step(number, at, 10 * MS)
        told = {"bytes": size, "source": "filter.py:6, jit(f)", "fft_length": length}
        for op, start, took, more in (("fft.1", at, 4, told), ("dot.2", at + 4 * MS, 5, {})):
            row = {"start_ns": start, "duration_ns": took * MS, "device": 0}
            built.add("compiled_ops", op=op, **row, **more)
            built.add("device_ops", name=op, kind=DeviceKind.KERNEL, stream=1, **row)
    return built.trace()


def test_compiled_programs_say_the_lengths_of_their_transforms(outcome):
    (found,) = outcome("fft-length", compiled(16_001)).findings
    assert found.summary == (
        "Fourier transforms of length 16001, a prime, take 4.00 ms of the device's time a step in"
        " filter.py:6; 16200 is a fast length"
    )
    least, most = found.saving_ns_per_step
    assert 2 * MS < least < most < 4.2 * MS


@pytest.mark.parametrize("length", [16_200, 127 * 128, None])
def test_compiled_transforms_of_other_lengths_are_fine(outcome, length):
    assert outcome("fft-length", compiled(length)).findings == ()
