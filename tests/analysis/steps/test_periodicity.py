import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind

LAYER = ["norm", "gemm", "gemm", "softmax", "gemm", "add"]
BLOCK = ["norm", "q", "k", "v", "rope", "softmax", "out", "add", "up", "gate", "down"]


def run(builder, kernels, at, *, spacing=10):
    """Launch kernels one after the other; returns when the next may start."""
    for kernel in kernels:
        builder.launch(at, 2, kernel, at + 3, 5)
        at += spacing
    return at


def forward(layers):
    return ["embed", *LAYER * layers, "head", "argmax"]


def test_repeated_annotations_are_steps():
    b = TraceBuilder()
    for i in range(4):
        b.annotation(f"train iteration {i}", i * 1000, 900)
        run(b, LAYER, i * 1000 + 10)
    found = steps(b.trace())
    assert found.how == "inferred"
    assert "train iteration #" in found.basis
    assert found.durations_ns.tolist() == [1000] * 3
    assert found.confidence == pytest.approx(0.96, abs=0.01)


def test_the_end_of_the_optimizer_ends_a_training_step():
    b = TraceBuilder()
    for i in range(5):
        run(b, ["gemm", "relu", "gemm", "loss"], i * 1000)
        b.annotation("Optimizer.step#SGD.step", i * 1000 + 500, 100)
        run(b, ["sgd"], i * 1000 + 510)
    found = steps(b.trace())
    assert "Optimizer.step#SGD.step" in found.basis
    assert found.host_start_ns.tolist() == [0, *(600 + 1000 * i for i in range(4))]
    assert found.durations_ns.tolist() == [1000] * 4


def test_annotations_inside_a_step_lose_to_what_covers_it():
    b = TraceBuilder()
    for i in range(3):
        b.annotation("step", i * 1000, 990)
        at = run(b, ["embed"], i * 1000 + 10)
        for _ in range(4):
            b.annotation("layer", at, 60)
            at = run(b, LAYER, at)
        run(b, ["head"], at)
    found = steps(b.trace())
    assert len(found) == 3
    assert "'step'" in found.basis


def test_python_calls_are_steps_when_nothing_is_annotated():
    b = TraceBuilder()
    b.python("train.py(3): main", 0, 10_000)
    for i in range(4):
        b.python("train.py(9): one_batch", i * 1000, 950)
        run(b, forward(3), i * 1000 + 5)
    assert "train.py(9): one_batch" in steps(b.trace()).basis


def test_calls_that_hold_all_work_are_steps_though_they_differ():
    b = TraceBuilder()
    for i in range(4):
        b.python("train.py(9): one_batch", i * 1000, 950)
        run(b, [*forward(2), *(["copy", "copy2", "copy3"] if i == 2 else [])], i * 1000 + 5)
    assert len(steps(b.trace())) == 4


def test_modules_of_one_pass_are_no_steps():
    b = TraceBuilder()
    at = run(b, ["embed", "dropout"], 0)
    for i in range(6):
        b.op(f"nn.Module: Block_{i}", at, 55, kind=HostKind.MODULE)
        at = run(b, LAYER, at)
    run(b, ["norm_out", "head", "log"], at)
    assert steps(b.trace()).how == "none"


def test_decode_steps_by_graph_launches():
    b = TraceBuilder()
    for i in range(6):
        call = b.api("cudaGraphLaunch", i * 100, 5, kind=ApiKind.GRAPH_LAUNCH)
        for k in range(3):
            b.add(
                "device_ops",
                name=f"kernel{k}",
                kind=DeviceKind.KERNEL,
                start_ns=i * 100 + 10 + k * 20,
                duration_ns=20,
                device=0,
                stream=7,
                correlation=call["correlation"],
            )
    found = steps(b.trace())
    assert "graph launches" in found.basis
    assert found.durations_ns.tolist() == [100] * 5


def test_a_last_step_that_was_cut_off_is_not_complete():
    b = TraceBuilder()
    at = 0
    for _ in range(4):
        at = run(b, forward(4), at) + 50
    run(b, forward(1), at)
    found = steps(b.trace())
    assert found.complete.tolist() == [False, True, True, True, False]


def test_periodicity_of_launches_finds_steps_and_not_layers():
    b = TraceBuilder()
    at = 0
    for _ in range(5):
        at = run(b, forward(4), at) + 50
    found = steps(b.trace())
    assert found.how == "inferred"
    assert len(found) == 5
    assert set(found.durations_ns.tolist()) == {27 * 10 + 50}


def test_layers_of_one_pass_are_no_steps():
    b = TraceBuilder()
    run(b, ["embed", "position", "dropout", *LAYER * 12, "norm_out", "head", "log", "gather"], 0)
    found = steps(b.trace())
    assert found.how == "none"
    assert "nothing repeats" in found.basis


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "pause_ns", "how"),
    [
        pytest.param(["embed"], [], 0, "none", id="joined before"),
        pytest.param([], ["head"], 0, "none", id="joined after"),
        pytest.param(["embed"], ["head"], 500, "inferred", id="apart"),
        pytest.param([], [], 0, "inferred", id="nothing else"),
    ],
)
def test_layers_that_are_joined_by_what_comes_once_are_no_steps(host, before, after, pause_ns, how):
    b = TraceBuilder()
    at = run(b, before, 0)
    at = run(b, BLOCK * 8, at + pause_ns)
    run(b, after, at + pause_ns)
    if not host:
        b.rows.pop("api_calls", None)
        for row in b.rows["device_ops"]:
            row.pop("correlation", None)
    found = steps(b.trace())
    assert found.how == how
    if how == "none":
        assert "parts of one pass" in found.basis


@pytest.mark.parametrize(("pause_ns", "how"), [(40, "none"), (60, "inferred")])
def test_in_a_range_marked_once_any_pause_of_a_piece_joins(pause_ns, how):
    b = TraceBuilder()
    b.annotation("model_inference", 0, 10_000)
    at = run(b, ["embed"], 10) + pause_ns
    for i in range(8):
        at = run(b, BLOCK[:5], at)
        at = run(b, BLOCK[5:], at + (50 if i == 3 else 0))
    found = steps(b.trace())
    assert found.how == how


@pytest.mark.parametrize(("name", "how"), [("forward pass", "none"), ("profile", "inferred")])
def test_what_repeats_inside_one_annotated_pass_are_its_layers(name, how):
    b = TraceBuilder()
    at = 10
    for _ in range(12):
        b.annotation("attention", at, 25)
        at = run(b, LAYER, at)
    b.annotation(name, 0, at)
    assert steps(b.trace()).how == how


@pytest.mark.parametrize(("number", "count"), [("layer_{0}", 0), ("step_{0}", 12)])
def test_ranges_that_are_numbered_as_layers_are_no_steps(number, count):
    b = TraceBuilder()
    at = 0
    for layer in range(12):
        b.annotation(number.format(layer), at, 25)
        at = run(b, LAYER, at)
    assert len(steps(b.trace())) == max(count, 1)
    assert (steps(b.trace()).how == "none") == (count == 0)


def test_passes_over_numbered_layers_are_steps():
    b = TraceBuilder()
    at = 0
    for token in range(6):
        start = at
        for layer in range(4):
            b.annotation(f"layer_{layer}_token_{token}", at, 25)
            at = run(b, LAYER, at)
        b.annotation(f"token_{token}", start, at - start)
    assert len(steps(b.trace())) == 6


def test_a_short_loop_of_one_kernel_is_no_series_of_steps():
    b = TraceBuilder()
    run(b, ["gemm"] * 50, 0)
    assert steps(b.trace()).how == "none"


def test_steps_on_the_device_where_no_host_was_recorded():
    b = TraceBuilder()
    at = 0
    for _ in range(4):
        for kernel in forward(3):
            b.add(
                "device_ops",
                name=kernel,
                kind=DeviceKind.KERNEL,
                start_ns=at,
                duration_ns=5,
                device=0,
                stream=7,
            )
            at += 10
    found = steps(b.trace())
    assert "device operations repeat" in found.basis
    assert len(found) == 4
    assert set(found.durations_ns.tolist()) == {210}


def test_steps_of_a_host_only_recording():
    b = TraceBuilder()
    for i in range(4):
        b.annotation("batch", i * 100, 100)
        for k in range(5):
            b.op(f"aten::op{k}", i * 100 + k * 10, 8)
    found = steps(b.trace())
    assert found.durations_ns.tolist() == [100] * 3


def test_blocks_inside_one_call_of_a_model_are_no_steps():
    b = TraceBuilder()
    b.op("nn.Module: Model_0", 0, 5000, kind=HostKind.MODULE)
    at = run(b, ["embed"], 10)
    for i in range(10):
        b.op(f"nn.Module: Block_{i}", at, 180, kind=HostKind.MODULE)
        at = run(b, LAYER * 3, at)
    found = steps(b.trace())
    assert found.how == "none"
    assert "one call of 'nn.Module: Model_0'" in found.basis


def test_passes_inside_one_call_of_a_model_are_steps():
    b = TraceBuilder()
    b.op("nn.Module: Generate_0", 0, 5000, kind=HostKind.MODULE)
    at = 10
    for _ in range(10):
        b.op("nn.Module: Decoder_0", at, 180, kind=HostKind.MODULE)
        at = run(b, LAYER * 3, at)
    assert len(steps(b.trace())) == 10


def test_optimizer_steps_are_steps_though_the_first_iteration_is_cold():
    b = TraceBuilder()
    at = 0
    for i in range(6):
        b.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 20)
        tried = [f"algorithm {k}" for k in range(30)] if i == 0 else []
        at = run(b, [*tried, *LAYER * 2], at + 30)
        b.annotation("Optimizer.step#SGD.step", at, 50)
        at = run(b, ["sgd"], at) + 60
    found = steps(b.trace())
    assert "Optimizer.step#SGD.step" in found.basis
    assert len(found) == 6
    assert len(set(found.durations_ns.tolist())) == 1


def test_two_optimizers_a_round_are_one_step():
    b = TraceBuilder()
    at = 0
    for _ in range(6):
        for kernels in (["disc", "loss", "disc_back"], ["gen", "disc", "gen_back", "noise"]):
            at = run(b, kernels, at)
            b.annotation("Optimizer.step#Adam.step", at, 50)
            at = run(b, [f"adam of {kernels[0]}"], at) + 60
    assert len(steps(b.trace())) == 6


def test_ranges_alone_show_steps():
    b = TraceBuilder()
    for i in range(20):
        b.annotation("data_loading", i * 40, 10)
        b.annotation("forward_pass", i * 40 + 10, 10)
        b.annotation("backward_pass", i * 40 + 20, 19)
    found = steps(b.trace())
    assert "'data_loading', 20 times" in found.basis
    assert set(found.durations_ns.tolist()) == {40}


def test_devices_that_do_the_same_show_the_steps_of_one():
    b = TraceBuilder()
    for i in range(10):
        for k in range(10):
            for device in (0, 1):
                b.add("device_ops", name=f"gemm {k}", kind=DeviceKind.KERNEL, device=device,
                      start_ns=i * 1000 + k * 50, duration_ns=50, stream=7)  # fmt: skip
    found = steps(b.trace())
    assert len(found) == 10
    assert set(found.durations_ns.tolist()) == {1000}


def test_passes_that_may_be_a_part_of_a_step_are_less_sure_than_training():
    def found(last):
        b = TraceBuilder()
        at = 0
        for _ in range(5):
            at = run(b, [*LAYER * 3, last], at) + 50
        return steps(b.trace()).confidence

    assert found("argmax") == pytest.approx(0.75, abs=0.05)
    assert found("multi_tensor_apply_kernel") == pytest.approx(0.94, abs=0.03)


def test_a_loader_alone_shows_steps_though_the_first_is_cold():
    b = TraceBuilder()
    at = 0
    for i in range(6):
        b.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 20)
        tried = [f"algorithm {k}" for k in range(30)] if i == 0 else []
        at = run(b, [*tried, *LAYER * 2], at + 30)
    assert "enumerate(DataLoader)" in steps(b.trace()).basis


def test_a_loop_of_two_kernels_is_said_to_repeat_and_is_no_step():
    b = TraceBuilder()
    run(b, ["fan1", "fan2"] * 50, 0)
    found = steps(b.trace())
    assert found.how == "none"
    assert "rounds of 2 launches repeat 50 times, too little" in found.basis


DESCENT = ["forward", "loss", "gradient", "update"]


def rounds_of(kernels, rounds, *, copies=True, set_up=("set up",)):
    """Rounds of kernels, each after a copy of some bytes to the device."""
    b = TraceBuilder()
    at = run(b, set_up, 0)
    for _ in range(rounds):
        if copies:
            b.copy(at, 2, "Memcpy HtoD", at + 3, 2, size=4,
                   source=MemoryKind.PAGEABLE, target=MemoryKind.DEVICE)  # fmt: skip
        at = run(b, kernels, at + 10)
    return steps(b.trace())


@pytest.mark.parametrize("kernels", [DESCENT, ["fused", "fused", "fused", "update"]])
def test_more_rounds_than_models_have_layers_are_steps(kernels):
    found = rounds_of(kernels, 129)
    assert (found.how, len(found)) == ("inferred", 129)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(rounds_of(DESCENT, 128), id="as many as layers"),
        pytest.param(rounds_of(DESCENT, 200, copies=False), id="a loop of kernels alone"),
        pytest.param(rounds_of(["gemm"] * 4, 200), id="around one kernel"),
    ],
)
def test_other_short_rounds_are_no_steps(found):
    assert found.how == "none"


def with_the_host(rounds, kernels=("fan1", "fan2"), *, waits=True, sends=False, fetches=False):
    """Rounds of kernels in each of which the host takes part."""
    b, at = TraceBuilder(), 0
    for _ in range(rounds):
        if sends:
            b.copy(at, 2, "Memcpy HtoD", at + 3, 2, size=4,
                   source=MemoryKind.PAGEABLE, target=MemoryKind.DEVICE)  # fmt: skip
        at = run(b, kernels, at + 10)
        if fetches:
            b.copy(at, 2, "Memcpy DtoH", at + 3, 2, size=4,
                   source=MemoryKind.DEVICE, target=MemoryKind.PAGEABLE)  # fmt: skip
        if waits:
            b.api("cudaDeviceSynchronize", at + 6, 3, kind=ApiKind.SYNC_DEVICE)
        at += 10
    return steps(b.trace())


@pytest.mark.parametrize(
    ("found", "count"),
    [
        pytest.param(with_the_host(200), 200, id="it waits for two kernels"),
        pytest.param(
            with_the_host(20, ["solve"], waits=False, sends=True, fetches=True), 20,
            id="it sends and fetches",
        ),
    ],
)  # fmt: skip
def test_short_rounds_in_which_the_host_takes_part_are_steps(found, count):
    assert (found.how, len(found)) == ("inferred", count)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(with_the_host(100), id="as many as layers"),
        pytest.param(with_the_host(200, waits=False), id="kernels alone"),
        pytest.param(with_the_host(200, ["gemm", "gemm"]), id="one kernel"),
        pytest.param(with_the_host(200, ["cast"], sends=True), id="weights are sent and cast"),
        pytest.param(
            with_the_host(10, ["solve"], sends=True, fetches=True), id="parts kept on the host"
        ),
    ],
)
def test_short_rounds_that_may_be_a_loop_in_a_step_are_none(found):
    assert found.how == "none"


def test_rounds_begin_with_the_first_work_where_nothing_else_was_recorded():
    b = TraceBuilder()
    run(b, ["gemm", "gemm", *BLOCK] * 5, 0)  # "norm" is the first that comes once a round
    found = steps(b.trace())
    assert found.host_start_ns.tolist() == [130 * i for i in range(5)]
    assert found.durations_ns.tolist() == [130] * 4


def decoding(of_each, rounds=4, *, looked_up="aten::embedding", last=("aten::cat",)):
    """Rounds of operators with one kernel each, then what is done once."""
    b, at = TraceBuilder(), 0
    round_ = [looked_up, *["aten::linear", "aten::mul", "aten::add", "aten::pow"] * 3, *of_each]
    for name in [*round_ * rounds, *last]:
        b.op(name, at, 8)
        b.launch(at + 2, 2, f"{name} kernel", at + 5, 5)
        at += 10
    return b.trace()


def test_rounds_that_look_tokens_up_and_choose_one_are_no_layers():
    found = steps(decoding(["aten::argmax"]))
    assert (found.how, len(found)) == ("inferred", 4)
    assert found.durations_ns.tolist() == [140, 140]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(decoding(["aten::topk"]), id="none is chosen"),
        pytest.param(decoding(["aten::argmax"], looked_up="aten::mul"), id="nothing is looked up"),
    ],
)
def test_rounds_that_what_follows_is_joined_to_are_layers(trace):
    found = steps(trace)
    assert found.how == "none"
    assert "parts of one pass" in found.basis


def test_rounds_of_ranges_are_steps_whatever_was_set_up_before():
    b = TraceBuilder()
    for i in range(40):  # a model loads: ranges that never come again
        b.annotation(f"load {'abcdefghij'[i // 4]}{'klmn'[i % 4]}", i * 10, 8)
    for i in range(20):
        at = 1000 + 1000 * i
        for place, name in enumerate(("read", "forward", "head", "draw")):
            b.annotation(name, at + 200 * place, 150)
            b.annotation("inside", at + 200 * place + 10, 100)
    found = steps(b.trace())
    assert (found.how, len(found)) == ("inferred", 20)
    assert found.typical_ns == 1000


def test_one_range_around_the_program_does_not_hide_its_rounds():
    b = TraceBuilder()
    b.annotation("main", 0, 100_000)
    for i in range(20):
        b.annotation("forward", 1000 + 1000 * i, 600)
        b.annotation("backward", 1700 + 1000 * i, 200)
    found = steps(b.trace())
    assert (len(found), found.typical_ns) == (20, 1000)


def test_layers_of_one_pass_that_are_ranges_are_no_steps():
    b = TraceBuilder()
    b.annotation("embed", 0, 50)
    for i in range(12):
        b.annotation("attention", 100 + 200 * i, 90)
        b.annotation("mlp", 200 + 200 * i, 90)
    for place, name in enumerate(("norm", "head", "loss", "backward", "optimizer")):
        b.annotation(name, 2600 + 500 * place, 480)
    assert steps(b.trace()).how == "none"


def test_ranges_that_differ_in_their_numbers_are_rounds():
    b = TraceBuilder()
    for i in range(10):
        b.annotation(f"Iteration {i}", i * 100, 50)
    found = steps(b.trace())
    assert (len(found), set(found.durations_ns.tolist())) == (10, {100})


@pytest.mark.parametrize(("long_round", "how"), [(0, "inferred"), (9, "none")])
def test_rounds_of_which_one_lasts_longer_than_all_others_are_none(long_round, how):
    b = TraceBuilder()
    at = 0
    for i in range(20):
        b.annotation("Execute", at, 5)
        at += 5_000 if i == long_round else 10
    assert steps(b.trace()).how == how


def test_ranges_whose_numbers_do_not_count_are_no_rounds():
    b = TraceBuilder()
    lines = [41, 42, 45, 45, 48, 45, 45, 48, 45, 45, 48, 60]
    for i, line in enumerate(lines * 2):
        b.annotation(f"Line {line}", i * 100, 50)
    assert steps(b.trace()).how == "none"


def test_steps_that_their_author_counts_need_not_hold_the_rest_of_the_program():
    b = TraceBuilder()
    at = 0
    for i in range(5):
        b.annotation(f"Warm-up Step {i + 1}", at, 1000)
        run(b, [*LAYER * 4, "multi_tensor_apply_kernel"], at)
        at += 1000
    for _ in range(10):  # passes without the rest of a step
        at = run(b, ["forward only", *LAYER], at) + 50
    found = steps(b.trace())
    assert "'Warm-up Step #', 5 times" in found.basis
    assert found.typical_ns == 1000


def passes_of_layers(name):
    """Five passes of six layers, each with a range of this name around its softmax."""
    b = TraceBuilder()
    at = 0
    for _ in range(5):
        at = run(b, ["embed"], at)
        for _ in range(6):
            b.annotation(name, at + 50, 15)
            at = run(b, [f"kernel {k}" for k in range(20)], at)
        at = run(b, ["head"], at) + 20
    return b.trace()


def test_a_range_around_a_part_of_each_layer_makes_layers_no_steps():
    assert len(steps(passes_of_layers("softmax"))) == 5


def test_a_loader_is_asked_once_more_than_it_has_batches():
    b = TraceBuilder()
    at = 0
    for _ in range(3):
        b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 20)
        at = run(b, LAYER * 3, at + 30)
    b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 500)
    found = steps(b.trace())
    assert len(found) == 3
    assert found.complete.tolist() == [False, True, True]


@pytest.mark.parametrize("kind", [HostKind.ANNOTATION, HostKind.OPERATOR])
def test_units_that_a_framework_numbers_as_blocks_are_layers(kind):
    b = TraceBuilder()
    at = 0
    for i in range(16):
        b.op(f"FSDP::pre_forward (blocks.{i}.module)", at, 5, kind=kind)
        at = run(b, BLOCK, at + 10)
    assert steps(b.trace()).how == "none"


def test_what_a_forward_pass_registers_for_after_a_backward_one_is_no_training():
    def found(name):
        b = TraceBuilder()
        at = 0
        for _ in range(5):
            b.op(name, at, 5)
            at = run(b, [*LAYER * 3, "argmax"], at + 10) + 50
        return steps(b.trace()).confidence

    assert found("RegisterPostBackwardFunction") == found("aten::view")
    assert found("MulBackward0") > found("aten::view")
