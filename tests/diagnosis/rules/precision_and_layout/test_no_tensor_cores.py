from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.precision_and_layout.no_tensor_cores import REACHED_RATIO, check
from pinchpoint.hardware.specs import find_spec
from pinchpoint.trace import Device, RunFacts
from pinchpoint.trace.run_values import RunValues
from program import Program

PLAIN = "ampere_sgemm_128x64_nn"
SCALES = "void scal_kernel_val<float, float>(cublasScalParamsVal<float, float>)"
TF32 = "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4"
H100 = TraceBuilder().devices[0].name


def products(kernel, us, dtype="float"):
    """Each step multiplies twice."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(2):
            with p.row("aten::mm", shapes=[[4096, 4096]] * 2, dtypes=[dtype] * 2):
                p.kernel(kernel, us)
    return p.trace()


def test_names_operator_place_and_cost(outcome):
    (finding,) = outcome("no-tensor-cores", products(PLAIN, 2_000)).findings
    assert finding.cost_ns_per_step == 4_000_000
    assert finding.location.file == "train.py"
    assert finding.evidence[2].name == PLAIN


def test_predicts_by_the_peaks_of_the_data_sheet(predicted):
    spec = find_spec(H100)
    faster = REACHED_RATIO * spec.peak_flop_per_s("tf32") / spec.peak_flop_per_s("fp32")
    after_ns = 4e6 / faster
    assert predicted(products(PLAIN, 2_000), "no-tensor-cores") == pytest.approx(after_ns, rel=0.03)


@pytest.mark.parametrize(
    "trace",
    [
        products(TF32, 500),
        products("ampere_dgemm_128x64_nn", 500, "double"),
        products(PLAIN, 10),
        products(SCALES, 500),
    ],
    ids=["already TF32", "float64", "short", "scales results"],
)
def test_other_products_are_not_meant(outcome, trace):
    assert outcome("no-tensor-cores", trace).answer == "clear"


def test_a_device_without_such_units_is_not_checked(outcome):
    p = Program()
    p.builder.devices[0] = Device(0, "Tesla V100-SXM2-16GB")
    for _ in p.steps(6):
        p.kernel(PLAIN, 2_000)
    assert outcome("no-tensor-cores", p.trace()).answer == "not checked"


@pytest.mark.parametrize(
    ("device", "idle_us", "fits"),
    [("Tesla T4", 0, True), ("Tesla T4", 20_000, False), ("Tesla P100-PCIE-16GB", 0, False)],
    ids=["16 bits", "little of the step", "no matrix units"],
)
def test_products_that_16_bits_may_speed_up_are_undecided(device, idle_us, fits):
    p = Program()
    p.builder.devices[0] = Device(0, device)
    for _ in p.steps(6):
        p.kernel(PLAIN, 2_000)
        p.sync()
        p.host("busy", idle_us)
    with pytest.raises(NotChecked) as not_checked:
        list(check(p.trace()))
    assert not_checked.value.fits == fits


@pytest.mark.parametrize(("capability", "answer"), [((7, 0), "not checked"), ((8, 6), "found")])
def test_an_unlisted_device_is_judged_by_its_compute_capability(outcome, capability, answer):
    p = Program()
    p.builder.devices[0] = Device(0, "A card of tomorrow", None, None, capability, "nvidia")
    for _ in p.steps(6):
        with p.row("aten::mm", shapes=[[4096, 4096]] * 2, dtypes=["float"] * 2):
            p.kernel(PLAIN, 2_000)
    assert outcome("no-tensor-cores", p.trace()).answer == answer


@pytest.mark.parametrize(("allowed", "found"), [(True, 0), (False, 1), (None, 1)])
def test_convolutions_that_may_use_tf32_have_no_such_kernel(outcome, allowed, found):
    p = Program()
    for _ in p.steps(6):
        with p.row("aten::cudnn_convolution", shapes=[[8, 1, 512, 512], [1, 1, 41, 41]]):
            p.kernel("implicit_convolve_sgemm<float, 1024>", 2_000)
    values = RunValues(9, 1, True, (), (), 0, cudnn_allow_tf32=allowed)
    trace = replace(p.trace(), run=RunFacts(values=values))
    assert len(outcome("no-tensor-cores", trace).findings) == found
