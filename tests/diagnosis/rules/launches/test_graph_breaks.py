import pytest

from pinchpoint.diagnosis.rules.launches.graph_breaks import COMPILED_LAUNCH_NS
from pinchpoint.trace import HostKind
from program import Program

REGIONS, HOST_US = 8, 100


def compiled(*, kinds=REGIONS, regions=REGIONS, name="Torch-Compiled Region: {}/0"):
    """A forward pass in pieces: compiled regions of HOST_US with Python between them."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("model.py(20): forward"):
            for i in range(regions):
                with p.row(name.format(i % kinds), kind=HostKind.ANNOTATION):
                    p.busy(HOST_US)
                    p.kernel("triton_poi_fused_add_0", 5)
                p.host("model.py(25): untraceable", 50)
    return p.trace()


def test_counts_regions_and_kinds(outcome):
    (finding,) = outcome("graph-breaks", compiled()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["compiled regions entered"] == REGIONS
    assert evidence["kinds of compiled regions"] == REGIONS
    assert finding.cost_ns_per_step == pytest.approx(REGIONS * (HOST_US + 5) * 1e3, rel=0.01)
    assert finding.location.function == "forward"


def test_in_one_region_the_host_does_the_work_of_one(predicted):
    one_ns = (HOST_US + 5 + 50) * 1e3
    assert predicted(compiled(), "graph-breaks") == pytest.approx(one_ns, rel=0.35)


@pytest.mark.parametrize(
    "trace",
    [compiled(kinds=3, regions=3), compiled(kinds=1), compiled(name="## Call {} ##")],
    ids=["forward, backward, optimizer", "one layer again and again", "not compiled"],
)
def test_other_steps_are_whole(outcome, trace):
    assert outcome("graph-breaks", trace).answer == "clear"


def test_kernels_are_launched_in_one_region_as_well(predicted):
    kernels = 100
    p = Program()
    for _ in p.steps(6):
        with p.frame("model.py(20): forward"):
            for i in range(REGIONS):
                with p.row(f"Torch-Compiled Region: {i}/0", kind=HostKind.ANNOTATION):
                    for _ in range(kernels // REGIONS):
                        p.busy(20)
                        p.kernel("triton_poi_fused_add_0", 1)
    launches = REGIONS * (kernels // REGIONS)
    assert predicted(p.trace(), "graph-breaks") >= launches * COMPILED_LAUNCH_NS
