"""Public reports, against facts that NVIDIA's own tools show for them."""

import gzip
import os
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.errors import UnreadableFile

CORPUS = os.environ.get("PINCHPOINT_CORPUS")
FOLDER = Path(CORPUS or ".", "public/nsight")

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS, reason="PINCHPOINT_CORPUS is not set"),
]


def durations(trace):
    counters = trace.kernel_counters
    return [
        counters["value"][i]
        for i in range(len(counters))
        if trace.text(counters, "metric", i) == "gpu__time_duration.sum"
    ]


def test_a_report_of_2023():
    trace = pp.load(FOLDER / "a10g_esmm.ncu-rep.gz")
    assert trace.source.producer == "ncu 2023.1.1.0"
    assert trace.devices[0].name == "NVIDIA A10G"
    assert durations(trace) == [431648, 296704, 260512, 222464]
    assert trace.profiled_launches[3].name.startswith("void warptiling<(int)128")
    assert len(trace.expert_notes) == 8


def test_a_report_of_2022():
    trace = pp.load(FOLDER / "gtx1660_mojo.ncu-rep.gz")
    assert trace.devices[0].name == "NVIDIA GeForce GTX 1660 Ti"
    assert durations(trace) == [1600, 1472, 1568, 1504]
    assert trace.devices[0].multiprocessors == 24


@pytest.mark.parametrize("part", [0.02, 0.6, 0.9, 0.97])
def test_a_real_report_that_is_cut_off(tmp_path, part):
    whole = gzip.decompress((FOLDER / "a10g_esmm.ncu-rep.gz").read_bytes())
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(whole[: int(len(whole) * part)])
    if part < 0.7:
        with pytest.raises(UnreadableFile, match="damaged or cut-off"):
            pp.load(path)
    else:
        assert pp.load(path).source.truncated
