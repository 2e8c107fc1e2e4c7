"""Names of a column: short, with the function's own name, and no two alike."""

from pinchpoint.report.tables.names import ROOM, room_of, told_apart

AT = "at::native::"


def elementwise(shell, functor, more="float"):
    return f"void {AT}{shell}<(int)4, {AT}{functor}<{more}>, std::array<char *, 3>>(int, T2, T3)"


def test_a_kernel_keeps_the_name_of_its_own_function():
    copy = f"{AT}direct_copy_kernel_cuda({AT}TensorIteratorBase &)::[lambda() (instance 3)]"
    names = [
        f"void {AT}elementwise_kernel<(int)128, void {AT}gpu_kernel_impl_nocast<{copy}>(int, T3)",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_nt_align1>(T1::Params)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "void <unnamed>::softmax_warp<float, (int)10>(float *)",
    ]
    assert told_apart(names, ROOM) == [
        "elementwise: direct_copy_kernel_cuda",
        "cutlass_80_simt_sgemm_nt_align1",
        "ncclDevKernel_AllGather_RING_LL",
        "softmax_warp",
    ]
    assert room_of(names) == ROOM


def test_names_that_would_look_alike_get_the_word_that_the_others_lack():
    names = [
        elementwise("vectorized_elementwise_kernel", "MulFunctor"),
        elementwise("vectorized_elementwise_kernel", "MulFunctor", "c10::BFloat16"),
        elementwise("elementwise_kernel", "MulFunctor", "double"),
        elementwise("elementwise_kernel", "MulFunctor", "int"),
    ]
    assert told_apart(names, ROOM) == [
        "elementwise: MulFunctor (float)",
        "elementwise: MulFunctor (BFloat16)",
        "elementwise: MulFunctor (double)",
        "elementwise: MulFunctor #4",
    ]
    assert told_apart([names[0], names[0]], ROOM) == ["elementwise: MulFunctor"] * 2


def test_long_names_show_where_they_differ():
    names = [f"a_{'x' * 60}{n}{'y' * 60}" for n in "12"]
    found = told_apart(names, ROOM)
    assert found[0] != found[1]
    assert all(len(name) <= ROOM and n in name for n, name in zip("12", found, strict=True))


def test_plain_names_stay_as_they_are():
    assert told_apart(["poll", "read", ":forward"], ROOM) == ["poll", "read", ":forward"]
    assert room_of(["poll", "read", ":forward"]) < ROOM
