import pytest

from analysis.launches import add_launches, launch, profiled
from builders import TraceBuilder
from pinchpoint.analysis.limits.counters import (
    comparable_name,
    kernel_launches,
    launch_of_device_ops,
    profiled_time_ns,
    with_counters,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float,"
            " at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int,"
            " at::native::AUnaryFunctor<float>, std::array<char*, 2ul>)",
            "void at::vectorized_elementwise_kernel<4, at::AUnaryFunctor<float,"
            " binary_internal::MulFunctor<float>>, std::array<char *, 2ul>>(int, T2, T3)",
        ),
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxForwardReg<float, 4>(float*)",
            "void at::<unnamed>::cunn_SoftMaxForwardReg<float, (int)4>(T3 *)",
        ),
        ("nvjet_sm90_tst_256x128", "nvjet_sm90_tst_256x128"),
        ("strided_copy", "strided_copy"),
    ],
)
def test_names_of_one_kernel_by_two_tools(one, other):
    assert comparable_name(one) == comparable_name(other)


def test_other_kernels_stay_apart():
    assert comparable_name("void at::native::f<4>(int)") != comparable_name(
        "void at::native::f<8>(int)"
    )


def timeline(*kernels):
    builder = TraceBuilder()
    for i, (name, grid) in enumerate(kernels):
        builder.launch(
            i * 10,
            5,
            name,
            runs_at=i * 100,
            for_ns=10 * (i + 1),
            grid=f"[{grid},1,1]",
            block="[128,1,1]",
        )
    return builder


def test_launches_go_with_kernels_of_their_name_and_size_in_order():
    builder = timeline(("gemm", 4), ("gemm", 8), ("add", 1), ("gemm", 4), ("other", 1))
    facts = add_launches(
        builder,
        launch("gemm", grid=(4, 1, 1), block=(128, 1, 1)),
        launch("gemm", grid=(8, 1, 1), block=(128, 1, 1)),
        launch("add", grid=(99, 1, 1), block=(128, 1, 1)),
    )
    trace = builder.trace(**facts)
    assert launch_of_device_ops(trace).tolist() == [0, 1, 2, 0, -1]
    assert profiled_time_ns(trace, kernel_launches(trace)[0]) == 10 + 40


def test_repeated_launches_are_taken_in_turn():
    builder = timeline(*[("gemm", 4)] * 5)
    facts = add_launches(builder, *[launch("gemm", grid=(4, 1, 1), block=(128, 1, 1))] * 2)
    assert launch_of_device_ops(builder.trace(**facts)).tolist() == [0, 1, 0, 1, 0]


def test_two_recordings_become_one():
    joined = with_counters(timeline(("gemm", 4)).trace(), profiled(launch("gemm", us=7)))
    (one,) = kernel_launches(joined)
    assert (one.name, one.get("gpu__time_duration.sum")) == ("gemm", 7000)
    assert launch_of_device_ops(joined).tolist() == [0]
    assert joined.text(joined.device_ops, "name", 0) == "gemm"
