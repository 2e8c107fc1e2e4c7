"""Causes of programs without a device: they fire, name their gain, and pass over look-alikes."""

import json
from dataclasses import replace

import pytest

from builders import TraceBuilder, with_what_goes
from looked_at_runs import IMPORTING, samples_of, spent, thread
from pinchpoint.analysis.mean.what_if import what_if_mean
from pinchpoint.diagnosis import windows
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.diagnosis.record import Need
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.on_cpu import cpu_few_threads
from pinchpoint.report.assemble.report import diagnose as report_of
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.run_folder.samples import UsageNote
from pinchpoint.trace import HostKind, RunFacts
from pinchpoint.trace.run_values import RunValues, SeenLoop, VainOperations

MS, US = 1_000_000, 1_000
LARGE, ROW = "[[256, 1024], [1024, 1024]]", "[[1, 512], [512, 512]]"


def _trace(work, steps=5, length=10 * MS):
    """Steps of 10 ms without a device, filled by ``work(builder, at)``."""
    builder = TraceBuilder()
    builder.devices = []
    for step in range(steps):
        builder.step(step, step * length, length)
        builder.python("train.py(5): train", step * length + 1, length - 10)
        work(builder, step * length + 10 * US)
    return builder.trace()


def _found(trace):
    return {r.id: r for r in diagnose(trace).found if r.id.startswith("cpu-")}


def _op(builder, name, at, takes, shapes=LARGE, dtype="float"):
    builder.op(name, at, takes, shapes=shapes, dtypes=f'["{dtype}", "{dtype}"]')


@pytest.mark.parametrize(("dtype", "found"), [("double", True), ("float", False)])
def test_float64_takes_twice_as_long(dtype, found):
    trace = _trace(lambda b, at: _op(b, "aten::mm", at, 8 * MS, dtype=dtype))
    said = _found(trace)
    assert ("cpu-float64" in said) == found
    if found:
        assert said["cpu-float64"].predicted.step_ns == 6 * MS
        assert said["cpu-float64"].predicted.base_ns == 10 * MS


def test_whether_matrices_can_be_factored_in_float32_does_not_show(outcome):
    def work(builder, at):
        _op(builder, "aten::mm", at, 6 * MS, dtype="double")
        _op(builder, "aten::linalg_cholesky_ex", at + 6 * MS, MS, dtype="double")

    said = outcome("cpu-float64", _trace(work))
    assert (said.answer, said.fits) == ("not checked", True)
    assert "factored" in said.why


def test_inputs_come_from_one_window_and_times_from_the_other():
    """Disturbed while shapes were recorded, the product took the whole step; it takes half."""

    def work(takes, shapes):
        return lambda b, at: b.op(
            "aten::mm", at, takes, **({"shapes": LARGE, "dtypes": shapes} if shapes else {})
        )

    named = _trace(work(38 * MS, '["double", "double"]'), length=40 * MS, steps=2)
    bare = replace(_trace(work(5 * MS, None)), run=RunFacts(named=named))
    (said,) = (r for r in windows.diagnose(bare).found if r.id == "cpu-float64")
    assert said.finding.cost_ns_per_step == 5 * MS
    assert (said.predicted.base_ns, said.predicted.step_ns) == (10 * MS, 7_500_000)


def test_one_slow_call_is_no_cause():
    """A call that the machine held up in one step of five is not what the program does."""
    taken = iter((8 * MS, 10 * US, 10 * US, 10 * US, 10 * US))
    trace = _trace(lambda b, at: _op(b, "aten::copy_", at, next(taken)))
    assert "cpu-copies" not in _found(trace)


def test_large_copies_go():
    def work(builder, at):
        _op(builder, "aten::contiguous", at, 4 * MS)
        _op(builder, "aten::copy_", at + US, 4 * MS - 2 * US)

    trace = _trace(work)
    assert _found(trace)["cpu-copies"].predicted.step_ns == with_what_goes(10 * MS, 6 * MS)


@pytest.mark.parametrize(
    ("name", "fix"), [("aten::clone", "Copy the part"), ("aten::contiguous", "Make the tensor in")]
)
def test_clones_are_copies_as_they_are(name, fix):
    def work(builder, at):
        _op(builder, name, at, 4 * MS)
        _op(builder, "aten::copy_", at + US, 4 * MS - 2 * US)

    assert _found(_trace(work))["cpu-copies"].finding.fix.startswith(fix)


@pytest.mark.parametrize(("shortest_ms", "found"), [(20, True), (5, False)])
def test_copies_that_waited_for_a_core_are_no_large_part_of_a_step(shortest_ms, found):
    """128 KiB are copied in 4 ms of 25. Where a product beside it takes 20 ms and once 5, calls
    waited for others' turns on a core: 0.26 ms for the copy and 5 for the product are 1 in 25."""
    products = iter((20, 20, shortest_ms, 20, 20))

    def work(builder, at):
        copied = {"shapes": "[[256, 128]]", "dtypes": '["float"]'}
        builder.op("aten::contiguous", at, 4 * MS, **copied)
        builder.op("aten::copy_", at + US, 4 * MS - 2 * US, **copied)
        _op(builder, "aten::mm", at + 4 * MS, next(products) * MS)

    assert ("cpu-copies" in _found(_trace(work, length=25 * MS))) == found


@pytest.mark.parametrize(
    ("strides", "found"),
    [
        pytest.param("[[1024, 1], [1, 1024]]", True, id="one is transposed"),
        pytest.param("[[1024, 1], [1024, 1]]", False, id="both in one order"),
    ],
)
def test_operands_in_different_orders_take_what_dense_ones_do(strides, found):
    """12 MiB take a slow core 3.1 ms; the operator takes 8."""
    square = "[[1024, 1024], [1024, 1024]]"
    given = {"shapes": square, "dtypes": '["float", "float"]', "strides": strides}
    trace = _trace(lambda b, at: b.op("aten::mul", at, 8 * MS, **given))
    said = _found(trace)
    assert ("cpu-strided-operands" in said) == found
    if found:
        left = 3 * 4 * 1024**2 / 4e9 * 1e9
        step_ns = said["cpu-strided-operands"].predicted.step_ns
        machines = (2 * MS + left) * (2 * MS + left / 3)  # a slow and a quick one
        assert step_ns == pytest.approx(machines**0.5, rel=1e-3)


def test_what_an_operator_copies_inside_is_its_own_work():
    def work(builder, at):
        _op(builder, "aten::addmm", at, 8 * MS)
        _op(builder, "aten::copy_", at + US, 4 * MS)

    assert "cpu-copies" not in _found(_trace(work))


def test_copies_of_the_optimizer_are_not_told():
    def work(builder, at):
        builder.annotation("Optimizer.step#SGD.step", at, 5 * MS)
        _op(builder, "aten::copy_", at + US, 4 * MS)

    assert "cpu-copies" not in _found(_trace(work))


def _loop(turns, shapes):
    def work(builder, at):
        for turn in range(turns):
            _op(builder, "aten::linear", at + turn * 100 * US, 80 * US, shapes)

    return _trace(work)


def _watched(trace, way, carried=(), names=("aten::linear",), turns=80):
    """A run that saw these operators in a loop."""
    shapes = ((1, 512), (512, 512))

    def all_of(some):
        return tuple(VainOperations(name, shapes, turns, ((0, turns - 1),)) for name in some)

    loop = SeenLoop(way, turns, all_of(names), all_of(carried))
    values = RunValues(30, 1, True, (), (), 0, work=(), operators=names, loops=(loop,))
    return replace(trace, run=RunFacts(values=values))


def _loop_answer(trace):
    return next(o for o in diagnose(trace).outcomes if o.id == "cpu-operator-loop")


# A tenth of the calls stays, and nothing of Python between them.
ONE_CALL_NS = 10 * MS - 0.9 * 6.4 * MS - 79 * 20 * US


@pytest.mark.parametrize("way", ["free", "scan"])
def test_a_loop_over_rows_becomes_one_call(way):
    carried = ("aten::linear",) if way == "scan" else ()
    said = _found(_watched(_loop(80, ROW), way, carried))["cpu-operator-loop"]
    assert said.finding.cost_ns_per_step == 80 * 80 * US
    assert said.predicted.step_ns == pytest.approx(ONE_CALL_NS, abs=US)


@pytest.mark.parametrize("seen", [False, True], ids=["not watched", "the host reads in it"])
def test_whether_turns_need_each_other_is_not_known(seen):
    trace = _watched(_loop(80, ROW), "unseen") if seen else _loop(80, ROW)
    said = _found(trace)["cpu-operator-loop"]
    read = "what the program reads on the host of the one before"
    needed = read if seen else "what the one before gave"
    assert said.finding.fix.startswith(f"If no turn needs {needed}")
    assert said.predicted.range_ns[0] <= ONE_CALL_NS
    assert said.predicted.range_ns[1] == 10 * MS


def test_a_chain_of_turns_cannot_be_one_call():
    trace = _watched(_loop(80, ROW), "chain", ("aten::linear",))
    assert "cpu-operator-loop" not in _found(trace)
    answer = _loop_answer(trace)
    assert (answer.answer, answer.needs) == ("not checked", Need.ANOTHER)
    assert "each needs what the one before gave" in answer.why


def test_of_a_chain_what_waits_for_no_other_turn_is_told():
    def work(builder, at):
        for turn in range(80):
            _op(builder, "aten::addmm", at + turn * 100 * US, 60 * US, ROW)
            _op(builder, "aten::tanh", at + (turn * 100 + 60) * US, 20 * US, ROW)

    names = ("aten::addmm", "aten::tanh")
    said = _found(_watched(_trace(work), "chain", ("aten::tanh",), names))["cpu-operator-loop"]
    assert "not for aten::addmm" in said.finding.summary
    assert said.finding.cost_ns_per_step == 80 * 60 * US
    assert said.predicted.step_ns == pytest.approx(10 * MS - 0.9 * 80 * 60 * US, abs=US)


def test_cells_of_a_recurrence_are_one_call_whose_turns_stay():
    def work(builder, at):
        for turn in range(80):
            _op(builder, "aten::lstm_cell", at + turn * 100 * US, 80 * US, ROW)
            _op(builder, "aten::tanh", at + (turn * 100 + 10) * US, 60 * US, ROW)

    for trace in (
        _trace(work),
        _watched(_trace(work), "chain", ("aten::tanh",), ("aten::tanh",)),
    ):
        said = _found(trace)["cpu-operator-loop"]
        assert said.finding.fix.startswith("Give the sequence to nn.LSTM")
        assert said.predicted.range_ns[0] <= 10 * MS - 0.5 * 6.4 * MS
        assert said.predicted.range_ns[1] == 10 * MS


@pytest.mark.parametrize(
    ("turns", "shapes"),
    [pytest.param(8, ROW, id="few turns"), pytest.param(80, LARGE, id="work enough a turn")],
)
def test_no_loop_worth_batching(turns, shapes):
    assert "cpu-operator-loop" not in _found(_loop(turns, shapes))


@pytest.mark.parametrize("chained", [False, True])
def test_a_short_loop_is_seen(chained):
    """20 calls of 18 µs in a step of 10 ms: one call could be all, unless each needs the last."""

    def work(builder, at):
        for turn in range(20):
            _op(builder, "aten::linear", at + turn * 100 * US, 18 * US, ROW)

    trace = _trace(work)
    if chained:
        trace = _watched(trace, "chain", ("aten::linear",), turns=20)
    answer = _loop_answer(trace)
    why = "" if chained else "smaller than 5 % of the step: 3.6 %"
    assert (answer.answer, answer.why) == ("clear" if chained else "smaller", why)


@pytest.mark.parametrize("length", [5, 100])
def test_operators_on_float64_tensors_that_take_little(outcome, length):
    """0.2 ms of 5 are seen; of 100 nobody sees them."""
    trace = _trace(
        lambda b, at: _op(b, "aten::mm", at, 200 * US, dtype="double"), length=length * MS
    )
    said = outcome("cpu-float64", trace)
    assert said.why == ("smaller than 5 % of the step: 4.0 %" if length == 5 else "")
    assert said.answer == ("smaller" if length == 5 else "clear")


@pytest.mark.parametrize(("beside_us", "told"), [(0, True), (3_000, False)])
def test_a_loop_that_passes_over_large_tensors(beside_us, told):
    """Between nothing and all but a tenth; none of it where the function does other work, too."""

    def work(builder, at):
        builder.python("echo.py(9): room", at, 9 * MS)
        for turn in range(60):
            begin = at + turn * 100 * US
            _op(builder, "aten::roll", begin, 60 * US, LARGE)
            _op(builder, "aten::add", begin + 60 * US, 20 * US, LARGE)
        _op(builder, "aten::mm", at + 6 * MS, beside_us * US, LARGE)

    said = _found(_trace(work)).get("cpu-operator-loop")
    assert (said is not None) == told
    if said is not None:
        assert said.finding.cost_ns_per_step == 60 * 80 * US
        assert said.predicted.range_ns[1] == 10 * MS
        assert said.predicted.step_ns == pytest.approx(
            (10 * (10 - 0.9 * 4.8)) ** 0.5 * MS, rel=0.01
        )


@pytest.mark.parametrize(
    ("called", "told"),
    [("torch/serialization.py(1315): load", False), ("model.py(9): project", True)],
)
def test_files_that_are_read_in_a_loop_are_no_tensors_to_batch(called, told):
    def work(builder, at):
        for turn in range(80):
            builder.python("cache.py(3): one", at + turn * 100 * US, 96 * US)
            builder.python(called, at + turn * 100 * US + US, 90 * US)
            _op(builder, "aten::linear", at + turn * 100 * US + 2 * US, 80 * US, ROW)

    assert ("cpu-operator-loop" in _found(_trace(work))) == told


def test_a_thread_that_waits_in_a_loop_is_not_the_loop():
    def work(builder, at):
        for turn in range(80):
            _op(builder, "aten::linear", at + turn * 100 * US, 80 * US, ROW)
            builder.python("threading.py(611): wait", at + turn * 100 * US, 90 * US, thread=1)

    trace = _trace(work)
    assert "turns in aten::linear" in _found(trace)["cpu-operator-loop"].finding.summary
    assert _found(trace)["cpu-operator-loop"].finding.cost_ns_per_step == 80 * 80 * US


def test_layers_are_no_loop():
    def work(builder, at):
        for layer in range(80):
            begin = at + layer * 100 * US
            builder.op(f"nn.Module: Linear_{layer}", begin, 90 * US, kind=HostKind.MODULE)
            _op(builder, "aten::linear", begin + US, 80 * US, ROW)

    assert "cpu-operator-loop" not in _found(_trace(work))


@pytest.mark.parametrize(("name", "found"), [("aten::mul_", True), ("aten::_fused_adamw_", False)])
def test_an_optimizer_operator_by_operator(name, found):
    def work(builder, at):
        builder.annotation("Optimizer.step#AdamW.step", at, 8 * MS)
        for call in range(80):
            _op(builder, name, at + call * 100 * US + US, 90 * US)

    said = _found(_trace(work))
    assert list(said) == (["cpu-unfused-optimizer"] if found else [])
    if found:
        assert said["cpu-unfused-optimizer"].predicted.step_ns == pytest.approx(4.4 * MS, abs=US)


def test_an_optimizer_without_a_fused_form_is_not_to_be_fused():
    def work(builder, at):
        builder.annotation("Optimizer.step#Shampoo.step", at, 8 * MS)
        for call in range(80):
            _op(builder, "aten::mul_", at + call * 100 * US + US, 90 * US)

    assert "cpu-unfused-optimizer" not in _found(_trace(work))


def test_an_optimizer_that_mostly_multiplies_matrices_is_not_to_be_fused():
    def work(builder, at):
        builder.annotation("Optimizer.step#Muon.step", at, 9 * MS)
        for call in range(80):
            _op(builder, "aten::mul_", at + call * 100 * US + US, 40 * US)
            _op(builder, "aten::mm", at + call * 100 * US + 42 * US, 55 * US)

    assert "cpu-unfused-optimizer" not in _found(_trace(work))


@pytest.mark.parametrize(("threads", "found"), [(1, True), (8, False)])
def test_threads_against_cores(threads, found):
    trace = _trace(lambda b, at: _op(b, "aten::mm", at, 8 * MS))
    trace = replace(trace, run=RunFacts(torch_threads=threads, cores_allowed=8.0, processes=1))
    said = _found(trace)
    assert ("cpu-few-threads" in said) == found
    if found:
        assert said["cpu-few-threads"].predicted.step_ns == round(10 * MS - 8 * MS * 0.5 * 7 / 8)


@pytest.mark.parametrize(
    ("others", "after_ms"), [(0.0, 10 - 8 * 0.5 * 7 / 8), (4.0, 7.0), (7.0, None)]
)
def test_threads_get_no_cores_that_other_programs_use(others, after_ms):
    facts = RunFacts(
        torch_threads=1, cores_allowed=8.0, processes=1, cores_there=8, cores_of_others=others
    )
    trace = replace(_trace(lambda b, at: _op(b, "aten::mm", at, 8 * MS)), run=facts)
    if after_ms is None:
        assert "cpu-few-threads" not in _found(trace)
        with pytest.raises(NotChecked, match=r"of which other programs used 7\.0"):
            list(cpu_few_threads.check(trace))
    else:
        assert _found(trace)["cpu-few-threads"].predicted.step_ns == round(after_ms * MS)


def test_a_listed_device_means_that_operators_only_launch():
    trace = _trace(lambda b, at: _op(b, "aten::mm", at, 8 * MS, dtype="double"))
    with_device = replace(trace, devices=TraceBuilder().trace().devices)
    assert not _found(with_device)
    assert what_if_mean(with_device, ()) is None


def test_causes_on_devices_do_not_apply():
    def untyped(builder, at):
        builder.op("aten::mm", at, MS)

    answers = {o.id: o.answer for o in diagnose(_trace(untyped)).outcomes}
    assert answers["launch-bound"] == "not applicable"
    assert answers["cpu-float64"] == "not checked"  # types were not recorded


def _optimizer_with_closure(own):
    """A trainer that runs forward and backward inside ``optimizer.step(closure)``."""

    def work(builder, at):
        builder.annotation("Optimizer.step#Adam.step", at, 9 * MS)
        for i in range(80):
            _op(builder, "aten::linear", at + US + i * 50 * US, 40 * US)
        node = "autograd::engine::evaluate_function: MmBackward0"
        _op(builder, node, at + 4_010 * US, 900 * US)
        _op(builder, "aten::mm", at + 4_020 * US, 800 * US)
        for i in range(own):
            _op(builder, "aten::mul_", at + 5 * MS + i * 40 * US, 38 * US)

    return _trace(work)


def test_what_runs_in_a_closure_is_not_the_optimizers():
    assert "cpu-unfused-optimizer" not in _found(_optimizer_with_closure(own=0))
    finding = _found(_optimizer_with_closure(own=90))["cpu-unfused-optimizer"].finding
    assert "90 operators a step" in finding.summary
    assert finding.hint == "torch.optim.Adam(..., fused=True)"
    assert finding.cost_ns_per_step == 90 * 38 * US


_AMX = ("avx2", "amx_bf16")


@pytest.mark.parametrize(
    ("features", "beside", "took", "answer"),
    [
        pytest.param(_AMX, "c10::BFloat16", 7, "found", id="one part in 16 bits"),
        pytest.param(_AMX, "float", 7, "not checked", id="all in float32: only a trial tells"),
        pytest.param(("avx2",), "c10::BFloat16", 7, "clear", id="no matrix units"),
        pytest.param(_AMX, "c10::BFloat16", 2, "smaller", id="too little of the step"),
    ],
)
def test_float32_on_a_processor_with_matrix_units(features, beside, took, answer):
    def work(builder, at):
        _op(builder, "aten::addmm", at, took * MS)
        _op(builder, "aten::mm", at + took * MS, MS, dtype=beside)

    trace = replace(_trace(work), run=RunFacts(cpu_features=features))
    outcome = next(o for o in diagnose(trace).outcomes if o.id == "cpu-float32-products")
    assert (outcome.answer, outcome.fits) == (answer, answer == "not checked")
    if answer == "found":
        low, high = _found(trace)[outcome.id].predicted.range_ns
        assert (low, high) == pytest.approx((10 * MS - 0.6 * 7 * MS, 10 * MS - 0.08 * 7 * MS))


@pytest.mark.parametrize(("rows", "found"), [(256, True), (1, False)])
def test_a_product_is_as_large_as_its_rows_and_not_as_its_bias(rows, found):
    shapes = f"[[1024], [{rows}, 1024], [1024, 1024]]"

    def work(builder, at):
        builder.op("aten::addmm", at, 8 * MS, shapes=shapes, dtypes=_FLOATS)
        _op(builder, "aten::mm", at + 8 * MS, MS, dtype="c10::Half")

    said = _found(replace(_trace(work), run=RunFacts(cpu_features=_AMX)))
    assert ("cpu-float32-products" in said) == found


_FLOATS = '["float", "float", "float"]'


@pytest.mark.parametrize(
    ("onednn", "name", "dtype", "found"),
    [
        pytest.param(False, "aten::conv2d", "float", True, id="convolution"),
        pytest.param(False, "aten::mm", "c10::BFloat16", True, id="product of 16 bits"),
        pytest.param(False, "aten::mm", "float", False, id="MKL multiplies float32"),
        pytest.param(False, "aten::conv2d", "double", False, id="no other way in float64"),
        pytest.param(True, "aten::conv2d", "float", False, id="switched on"),
    ],
)
def test_onednn_switched_off(onednn, name, dtype, found):
    trace = _trace(lambda b, at: _op(b, name, at, 8 * MS, dtype=dtype))
    said = _found(replace(trace, run=RunFacts(onednn=onednn)))
    assert ("cpu-onednn-off" in said) == found
    if found:
        left = 0.65 if dtype == "float" else 0.1
        assert said["cpu-onednn-off"].predicted.step_ns == round(2 * MS + left * 8 * MS)


@pytest.mark.parametrize(
    ("faults", "kernel_ms", "found"),
    [
        pytest.param(2_000.0, 6.0, True, id="0.5 to 2.5 us each"),
        pytest.param(2_000.0, 0.2, False, id="the kernel did hardly anything"),
        pytest.param(10.0, 6.0, False, id="the kernel did something else"),
    ],
)
def test_page_faults_of_every_step(faults, kernel_ms, found):
    trace = _trace(lambda b, at: _op(b, "aten::mul", at, 8 * MS))
    facts = RunFacts(
        page_faults_per_step=faults, kernel_ns_per_step=kernel_ms * MS, torch_threads=2
    )
    said = _found(replace(trace, run=facts))
    assert ("cpu-page-faults" in said) == found
    if found:
        low, high = said["cpu-page-faults"].predicted.range_ns
        assert (10 * MS - high, 10 * MS - low) == (500 * US, 5_000 * US)


def test_page_faults_by_their_share_of_the_time_on_cores():
    """Others have the cores: the step lasts five times as long as it computes."""
    trace = _trace(lambda b, at: _op(b, "aten::mul", at, 8 * MS))
    facts = RunFacts(
        page_faults_per_step=400.0, kernel_ns_per_step=0.8 * MS, user_ns_per_step=1.2 * MS
    )
    low, high = _found(replace(trace, run=facts))["cpu-page-faults"].predicted.range_ns
    # At most 1.4 times the middle of 2 and 4, as what stays is as doubtful.
    assert (10 * MS - high, 10 * MS - low) == (2 * MS, 4.2 * MS)


def test_page_faults_of_a_run_whose_steps_were_recorded_while_others_had_the_cores():
    trace = _trace(lambda b, at: _op(b, "aten::mul", at, 8 * MS))
    facts = RunFacts(
        page_faults_per_step=400.0,
        kernel_ns_per_step=0.8 * MS,
        user_ns_per_step=1.2 * MS,
        unprofiled_step_ns=(2_000 * US,) * 5,
    )
    after = _found(replace(trace, run=facts))["cpu-page-faults"].predicted
    assert (after.base_ns, *after.range_ns) == (2_000 * US, 1_160 * US, 1_600 * US)


def test_page_faults_of_a_run_whose_steps_were_not_counted():
    trace = _trace(lambda b, at: _op(b, "aten::mul", at, 8 * MS))
    usage = UsageNote(user_ns=3_000 * MS, kernel_ns=2_300 * MS, page_faults=1_000_000)
    samples = samples_of(thread(spent(IMPORTING, 1.3)), usage=usage)
    said = _found(replace(trace, run=RunFacts(samples=samples)))["cpu-page-faults"]
    assert "1,000,000 times in the run" in said.finding.summary
    low, high = said.predicted.range_ns  # 2 of 4 s: without imports, and what a start takes
    assert (10 * MS - high, 10 * MS - low) == (2.5 * MS, 1.4 * 3.75 * MS)


@pytest.mark.parametrize(
    ("name", "length", "fast", "left"),
    [
        pytest.param("aten::_fft_r2c", 4_099, 4_320, (1 / 47.6, 1 / 1.7), id="real, a prime"),
        pytest.param("aten::_fft_c2c", 2 * 1_009, 2_025, (1 / 27, 1 / 1.9), id="twice a prime"),
        pytest.param("aten::_fft_r2c", 3_071, 3_072, (1 / 53.7, 1 / 1.3), id="37 times 83"),
        pytest.param("aten::_fft_r2c", 4_092, None, None, id="factors up to 31"),
    ],
)
def test_transforms_of_a_slow_length(name, length, fast, left):
    shapes, values = f"[[64, {length}], [], [], []]", '["", "[1]", "0", "True"]'

    def work(builder, at):
        builder.op(name, at, 8 * MS, shapes=shapes, values=values)

    said = _found(_trace(work))
    assert ("cpu-fft-length" in said) == (fast is not None)
    if left is not None:
        finding = said["cpu-fft-length"]
        assert f"{fast} is a fast length" in finding.finding.summary
        low, high = (2 * MS + 8 * MS * ratio for ratio in left)
        said = finding.predicted
        alone = said.step_ns / 0.86  # without what usually goes with it
        rest = max(0.6 * alone, 10 * MS - 1.4 * (10 * MS - alone))  # as doubtful as all that stays
        assert said.range_ns == pytest.approx((min(low, rest), high), abs=2)


_COUNT, _TABLE = "[[1000000]]", "[[1000000], [1000000]]"


@pytest.mark.parametrize(
    ("name", "took", "shapes", "said"),
    [
        # 4 MB written at 4 GB/s and the start of a call: 1.02 ms
        pytest.param("aten::normal_", 5, _COUNT, "drawing random numbers", id="known"),
        # 12 MB: 3.02 ms
        pytest.param("aten::atan2", 9, _TABLE, None, id="less than three times"),
        pytest.param("aten::normal_", 1, _COUNT, None, id="as it should be"),
    ],
)
def test_an_operator_far_from_what_a_slow_core_needs(name, took, shapes, said):
    trace = _trace(lambda b, at: _op(b, name, at, took * MS, shapes))
    found = _found(trace)
    assert ("cpu-slow-operator" in found) == (said is not None)
    if said:
        assert said in found["cpu-slow-operator"].finding.summary
        assert found["cpu-slow-operator"].predicted.step_ns == pytest.approx(6.02 * MS, rel=1e-3)


@pytest.mark.parametrize(
    ("fastest", "told"),
    [
        pytest.param(1, False, id="the machine was full, and the operator is quick"),
        # 1.02 of 4 ms would do, and so of each 8: the step is 4.04 ms, or what it was
        pytest.param(4, True, id="slow even in its fastest call"),
    ],
)
def test_an_operator_is_judged_by_its_fastest_calls(fastest, told):
    taken = iter((8, fastest, 8, 8, 8))
    trace = _trace(lambda b, at: _op(b, "aten::normal_", at, next(taken) * MS, _COUNT))
    found = _found(trace)
    assert ("cpu-slow-operator" in found) == told
    if told:
        one = found["cpu-slow-operator"]
        assert f", {fastest:.2f} ms in its fastest calls" in one.finding.summary
        assert one.finding.confidence == "low"
        assert one.predicted.range_ns[1] == 10 * MS
        assert one.predicted.step_ns == pytest.approx((10 * 4.04) ** 0.5 * MS, rel=1e-3)


@pytest.mark.parametrize(
    ("others", "shapes", "answer"),
    [
        pytest.param(0.2, "[[64, 64]]", "found", id="the cores were its own"),
        # 128 calls of 0.06 ms at most, beside a product of 180
        pytest.param(1.9, "[[16, 16]]", "smaller", id="the calls waited for a core"),
        pytest.param(1.9, None, "not checked", id="what they take does not show"),
    ],
)
def test_an_optimizer_whose_calls_waited_for_a_core(outcome, others, shapes, answer):
    def work(builder, at):
        given = {"shapes": shapes, "dtypes": '["float"]'} if shapes else {}
        builder.op("aten::mm", at, 180 * MS, shapes=LARGE, dtypes='["float", "float"]')
        builder.annotation("Optimizer.step#AdamW.step", at + 180 * MS, 90 * MS)
        for call in range(128):
            builder.op("aten::mul_", at + 180 * MS + call * 700 * US, 650 * US, **given)

    facts = RunFacts(cores_allowed=2, cores_there=2, cores_of_others=others)
    trace = replace(_trace(work, length=300 * MS), run=facts)
    assert outcome("cpu-unfused-optimizer", trace).answer == answer


@pytest.mark.parametrize(
    ("name", "others", "told"),
    [
        pytest.param("aten::exp2", 1.9, False, id="all threads waited, in the fastest call, too"),
        pytest.param("aten::exp2", 0.2, True, id="the cores were its own"),
        pytest.param("aten::normal_", 1.9, True, id="known to be slow"),
    ],
)
def test_where_others_had_the_cores_only_what_is_known_is_slow(name, others, told):
    taken = iter((20, 8, 20, 20, 20))  # 2 ms would do
    trace = _trace(lambda b, at: _op(b, name, at, next(taken) * MS, _COUNT), length=25 * MS)
    facts = RunFacts(cores_allowed=2, cores_there=2, cores_of_others=others)
    assert ("cpu-slow-operator" in _found(replace(trace, run=facts))) == told


def test_an_operator_that_does_more_than_is_wanted_wherever_it_runs():
    """Without shapes, and so without a limit: between nothing and nine tenths of it."""
    said = _found(_trace(lambda b, at: _op(b, "aten::randperm", at, 8 * MS, None)))
    one = said["cpu-slow-operator"]
    assert one.finding.cost_ns_per_step == 8 * MS
    assert one.predicted.range_ns[1] == 10 * MS
    assert one.predicted.step_ns == pytest.approx((10 * (10 - 0.9 * 8)) ** 0.5 * MS, rel=0.01)


def test_an_operator_without_a_limit_is_named_with_its_shapes():
    trace = _trace(lambda b, at: _op(b, "aten::grid_sampler_2d", at, 9 * MS))
    said = closing_sentence(report_of(trace))
    assert f"How fast aten::grid_sampler_2d of {LARGE} in train (train.py:5), 90 %" in said


@pytest.mark.parametrize(
    ("conv_ms", "nodes", "not_checked"),
    [
        (8, (0,), {"layout-nchw": "shapes and strides"}),
        (1, (0, 1), {"numa-remote": "numactl --cpunodebind=0 --membind=0 COMMAND"}),
        (1, None, {"numa-remote": "a run folder"}),
        (1, (0,), {}),
    ],
)
def test_layout_and_memory_nodes_are_told_by_a_comparison_only(conv_ms, nodes, not_checked):
    trace = _trace(lambda b, at: _op(b, "aten::convolution", at, conv_ms * MS))
    said = {
        outcome.id: outcome.record
        for outcome in diagnose(replace(trace, run=RunFacts(cpu_nodes=nodes))).outcomes
        if outcome.answer == "not checked" and outcome.id in ("layout-nchw", "numa-remote")
    }
    assert said.keys() == not_checked.keys()
    assert all(not_checked[id_] in said[id_] for id_ in said)


FIRST, LAST = [200704, 3136, 56, 1], [200704, 1, 3584, 64]


def _convolving(order=FIRST, *, name="aten::mkldnn_convolution", dtype="float", backward=False):
    """Steps that convolve for 8 of 10 ms, on (8, 64, 56, 56) in some order."""

    def work(builder, at):
        given = {
            "shapes": json.dumps([[8, 64, 56, 56], [64, 64, 3, 3]]),
            "dtypes": json.dumps([dtype, dtype]),
            "strides": json.dumps([order, [576, 9, 3, 1]]),
        }
        builder.op("aten::convolution", at, 8 * MS, **given)
        builder.op(name, at + US, 8 * MS - 2 * US, **given)
        if backward:
            builder.op("aten::convolution_backward", at + 8 * MS, MS, **given)

    return _trace(work)


def test_inference_in_channels_first_order_is_turned_inside_convolutions():
    (said,) = (r for r in diagnose(_convolving()).found if r.id == "layout-nchw")
    assert said.finding.cost_ns_per_step == 8 * MS
    assert 5.2 * MS < said.predicted.step_ns < 8.4 * MS  # six tenths to a fifth of them are gone


@pytest.mark.parametrize(
    ("trace", "answer"),
    [
        (_convolving(LAST), "clear"),
        (_convolving(dtype="c10::BFloat16"), "not checked"),  # not measured
        (_convolving(backward=True), "not checked"),  # trains as fast in either order
        (_convolving(name="aten::thnn_conv2d"), "not checked"),  # another library's
    ],
)
def test_what_does_not_show_that_layouts_are_turned(trace, answer):
    (said,) = (o for o in diagnose(trace).outcomes if o.id == "layout-nchw")
    assert said.answer == answer


def _table(rows=300_000, *, shapes=True, tied=False, takes=(2 * MS, 6 * MS), read_us=0):
    """A bag of 7,168 rows of a table, its dense gradient, and an optimizer that passes over it."""
    whole, read = [rows, 32], [[512, 32], [7168], [], [], [], [], [], [], [], []]
    given = ["", "", "", "", "", str(rows), "False", "1", "", "-1"]

    def op(builder, name, at, length, sizes, values=None):
        more = {"shapes": json.dumps(sizes), "dtypes": json.dumps(["float"] * len(sizes))}
        more |= {"values": json.dumps(values)} if values else {}
        builder.op(name, at, length, **(more if shapes else {}))

    def work(builder, at):
        zeros, update = takes
        if read_us:
            op(builder, "aten::embedding_bag", at, read_us * US, [whole, [7168]])
        if tied:
            op(builder, "aten::mm", at, 10 * US, [[512, 32], [32, rows]])
        backward = "aten::_embedding_bag_dense_backward"
        op(builder, backward, at + 20 * US, zeros + 20 * US, read, given)
        op(builder, "aten::fill_", at + 30 * US, zeros, [whole, []])
        builder.annotation("Optimizer.step#Adagrad.step", at + 2_100 * US, update + 2 * US)
        op(builder, "aten::sqrt", at + 2_101 * US, update, [whole])

    return _trace(work)


def test_a_table_that_is_updated_for_few_rows():
    said = _found(_table())
    assert set(said) == {"cpu-dense-embedding-gradient"}
    found = said["cpu-dense-embedding-gradient"].finding
    assert found.cost_ns_per_step == 8 * MS
    # Three passes over 7,168 of 300,000 rows are left, and one millisecond of a sparse update.
    least, most = 8 * MS * (1 - 3 * 7168 / 300_000) - MS, 7 * MS
    (sure,), (best,) = found.changes, found.at_best
    assert 8 * MS * (1 - sure.factor) == pytest.approx(least)
    assert 8 * MS * (1 - best.factor) == pytest.approx(most)
    assert "7,168 of the 300,000 rows" in found.summary


@pytest.mark.parametrize("more", [{"rows": 50_000}, {"tied": True}], ids=["many rows", "tied"])
def test_a_gradient_that_is_dense_by_nature(more):
    assert "cpu-dense-embedding-gradient" not in _found(_table(**more))


@pytest.mark.parametrize("read_us", [10, 100])
def test_without_shapes_zeros_that_take_many_times_what_reading_does_tell(read_us):
    """Eight times 10 of 2,000 µs: at most 4 % of the rows; of 100: perhaps a third."""
    trace = _table(shapes=False, read_us=read_us)
    said = _found(trace)
    assert ("cpu-dense-embedding-gradient" in said) == (read_us == 10)
    if read_us == 10:
        found = said["cpu-dense-embedding-gradient"].finding
        assert "at most 4 % of the rows" in found.summary
        (change,) = found.changes
        assert 8 * MS * change.factor == pytest.approx(8 * MS * 3 * 0.04 + MS)


@pytest.mark.parametrize(("takes", "undecided"), [((2 * MS, 6 * MS), True), ((US, US), False)])
def test_without_shapes_a_table_is_undecided_where_much_passes_over_something(takes, undecided):
    trace = _table(shapes=False, takes=takes)
    (said,) = (o for o in diagnose(trace).outcomes if o.id == "cpu-dense-embedding-gradient")
    assert (said.answer, said.fits) == ("not checked", undecided)
    assert ("80 % of the step" in said.why) == undecided
