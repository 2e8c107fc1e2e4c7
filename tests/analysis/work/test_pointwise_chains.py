from device_steps import Work, device_bound
from pinchpoint.analysis.work.pointwise_chains import pointwise_chains

BIG = [4096, 4096]
MUL = "void at::native::vectorized_elementwise_kernel<4, MulFunctor<float> >(int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"


def mul(shape=BIG):
    return Work(MUL, 50, "aten::mul", [shape, shape], ["float", "float"])


def cast(target, source):
    return Work(MUL, 50, "aten::copy_", [BIG, BIG, []], [target, source, "Scalar"])


def test_kernels_of_one_size_follow_each_other():
    product = Work(GEMM, 100, "aten::mm", [BIG, BIG], ["float", "float"])
    chains = pointwise_chains(device_bound([mul(), mul(), product, mul(), mul([8192, 4096])]))
    lengths = chains.count(chains.chain >= 0)
    assert sorted(set(lengths.tolist())) == [1, 2]
    assert (chains.bytes[:2] == 3 * 4096 * 4096 * 4).all()
    assert (chains.tensor_bytes[:2] == 4096 * 4096 * 4).all()


def test_small_tensors_are_no_matter_of_bandwidth():
    assert len(pointwise_chains(device_bound([mul([64, 64])] * 3))) == 0


def test_work_of_a_moment_does_not_part_a_chain():
    tiny = Work(GEMM, 2, "aten::mm", [[8, 8], [8, 8]], ["float", "float"])
    product = Work(GEMM, 100, "aten::mm", [BIG, BIG], ["float", "float"])
    chains = pointwise_chains(device_bound([mul(), tiny, mul(), product], steps=2))
    assert chains.count(chains.chain >= 0).tolist()[0] == 2


def test_casts_there_and_back():
    product = Work(GEMM, 100, "aten::mm", [BIG, BIG], ["float", "float"])
    work = [cast("float", "c10::BFloat16"), mul(), cast("c10::BFloat16", "float"), product]
    chains = pointwise_chains(device_bound(work))
    assert chains.widens[:3].tolist() == [True, False, False]
    assert chains.narrows[:3].tolist() == [False, False, True]
    assert chains.round_trips.all()
    assert not pointwise_chains(device_bound([work[0], mul(), product])).round_trips.any()


def test_more_elements_than_64_bits_count_are_large():
    chains = pointwise_chains(device_bound([mul([1 << 40, 1 << 40]), mul([1 << 40, 1 << 40])]))
    assert len(chains)
