import pytest

from program import Program

GATHERS, HOST_US = 48, 80
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def gathering(*, gathers=GATHERS, elements=1 << 20, kind="allgather", name=GATHER):
    """Each layer gathers its parameters (2 MiB) in 30 us, and multiplies in 20 us."""
    p = Program()
    args = {"In msg nelems": elements // 2, "Out msg nelems": elements}
    args |= {"dtype": "BFloat16", "Group size": 2}
    for _ in p.steps(6):
        for _ in range(gathers):
            with p.frame("model.py(9): forward"):
                with p.row("c10d::_allgather_base_"):
                    p.busy(HOST_US - 5)
                    p.collective(30, args, collective=kind, name=name)
                p.kernel("gemm", 20)
    return p.trace()


def test_shows_count_and_size(outcome):
    (finding,) = outcome("fsdp-overwrapped", gathering()).findings
    assert finding.summary == f"{GATHERS} all-gathers a step of 2.0 MiB each"
    assert finding.cost_ns_per_step == GATHERS * 30_000


def test_is_what_a_diagnosis_says(ranked):
    assert "fsdp-overwrapped" in ranked(gathering())
    assert "small-collectives" not in ranked(gathering())


@pytest.mark.parametrize(
    "trace",
    [
        gathering(gathers=8),
        gathering(elements=1 << 24),
        gathering(kind="allreduce", name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    ],
    ids=["blocks", "large", "all-reduces"],
)
def test_other_collectives_are_not_meant(outcome, trace):
    assert outcome("fsdp-overwrapped", trace).answer == "clear"
