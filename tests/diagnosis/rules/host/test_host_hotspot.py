"""A place where the host computes while nothing is launched; milliseconds."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from builders import TraceBuilder, with_what_goes
from looked_at_runs import computing, spent, thread
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.what_if import what_if_mean
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.diagnosis.evidence.seen_computing import spent_in_ns
from pinchpoint.diagnosis.finding import Location
from pinchpoint.diagnosis.rules.host.host_hotspot import _mostly
from pinchpoint.trace import ApiKind, HostKind, MemoryKind, RunFacts, RunSamples
from pinchpoint.trace.run_samples import SampledThread, Spent
from program import Program

LIBRARY = "/env/lib/python3.11/site-packages/decoding"


def training(work, *, sync=True, kernel_ms=2.0):
    """Steps of a kernel, a wait, and host work."""
    p = Program()
    for _ in p.steps(8):
        with p.row("aten::mm"):
            p.kernel("gemm", 1_000 * kernel_ms)
        if sync:
            p.sync()
        work(p)
    return p.trace()


def python_loop(p):
    with p.frame("masks.py(33): mask_tokens"):
        for _ in range(100):
            p.host("<built-in method random of Random object at 0x1>", 20)
            p.busy(30)


def sorted_on_cpu(p):
    with p.frame("sample.py(13): nucleus"):
        p.host("aten::sort", 5_000, kind=HostKind.OPERATOR)


def dispatch(p):
    with p.frame("model.py(9): forward"):
        for _ in range(60):
            p.busy(30)
            with p.row("aten::add"):
                p.busy(20)
                p.kernel("elementwise", 2)


def parsing(file):
    """A function of the program in code of this file, for most of its time."""

    def work(p):
        with p.frame("serve.py(33): limits"), p.frame(f"{file}(343): raw_decode"):
            p.busy(5_000)

    return work


def test_what_is_known_of_code_of_a_library_that_runs_comes_first(outcome):
    trace = training(parsing("/usr/lib/python3.12/json/decoder.py"))
    (finding,) = outcome("host-hotspot", trace).findings
    assert finding.location.function == "limits"
    assert finding.fix.startswith("A text is parsed there: parse it once")
    assert "Or do it with operators" in finding.fix


def test_a_file_of_the_program_with_such_a_name_says_nothing(outcome):
    (finding,) = outcome("host-hotspot", training(parsing("/home/me/json/decoder.py"))).findings
    assert finding.fix.startswith("Do it with operators")


def test_a_loop_in_python(outcome, ranked):
    trace = training(python_loop)
    (finding,) = outcome("host-hotspot", trace).findings
    assert "in mask_tokens (masks.py:33) while it launches nothing" in finding.summary
    assert "mostly Python in mask_tokens" in finding.summary
    # 5 ms as recorded; recording costs at most 8 µs before and after each of the 100 calls.
    assert finding.cost_ns_per_step == pytest.approx(3_400_000, rel=0.1)
    assert "host-hotspot" in ranked(trace)


def test_python_between_the_calls_in_a_range_is_of_the_function_around_it(outcome):
    """A decoder's steps are calls of its model, and end with the next one."""

    def text(p):
        with (
            p.frame("serve.py(33): generate"),
            p.row("ProfilerStep#7", kind=HostKind.ANNOTATION),
        ):
            p.busy(5_000)

    (finding,) = outcome("host-hotspot", training(text)).findings
    assert "in generate (serve.py:33)" in finding.summary
    assert "mostly Python in generate" in finding.summary
    assert finding.cost_ns_per_step == pytest.approx(5_000_000, rel=0.01)


def test_a_range_outside_of_functions_has_no_place(outcome):
    def unknown(p):
        with p.row("phase", kind=HostKind.ANNOTATION):
            p.busy(5_000)

    trace = training(unknown)
    host = trace.host_ops
    python = host["kind"] == HostKind.PYTHON
    kinds = dict(host.columns) | {"kind": np.where(python, HostKind.ANNOTATION, host["kind"])}
    bare = replace(trace, host_ops=replace(host, columns=kinds))
    assert outcome("host-hotspot", bare).findings == ()


IMPORTS = "<frozen importlib._bootstrap>(1054): _find_spec"


@pytest.mark.parametrize(("name", "told"), [(IMPORTS, True), ("<eval_with_key>.3(4): run", False)])
def test_imports_are_asked_for_and_code_of_compilers_is_not(outcome, name, told):
    def work(p):
        with p.frame("serve.py(33): normalise"), p.frame(name):
            p.busy(5_000)

    found = outcome("host-hotspot", training(work)).findings
    assert bool(found) is told
    if told:
        assert found[0].location.function == "normalise"
        assert found[0].fix.startswith("A module is looked for there, in each call")


def test_a_place_that_takes_little_is_seen(outcome):
    """1 ms beside 20 of the device."""

    def little(p):
        with p.frame("masks.py(33): mask_tokens"):
            p.host("<built-in method sort of list object at 0x1>", 1_000)

    said = outcome("host-hotspot", training(little, kernel_ms=20))
    assert (said.answer, said.why) == ("smaller", "smaller than 10 % of the step: 4.7 %")


def spread(p, *, first_us=2_000):
    """Three helpers of one function, none of which has half of its work."""
    with p.frame("train.py(9): get_batch"), p.frame("texts.py(30): encode"):
        p.host("texts.py(3): words", first_us)
        p.host("texts.py(9): times", 1_900)
        p.host("texts.py(15): paths", 1_800)


def test_work_that_is_spread_is_of_the_function_that_calls_it(outcome):
    (finding,) = outcome("host-hotspot", training(spread)).findings
    assert finding.location.function == "encode"
    assert finding.summary.endswith(": of that words 35 %, times 33 %, paths 32 %")
    assert finding.cost_ns_per_step == pytest.approx(5_700_000, rel=0.1)


def test_work_at_the_end_of_a_deep_recursion(outcome):
    """What each function calls is summed once, not once for each frame above it."""

    def parse(p):
        with ExitStack() as stack:
            stack.enter_context(p.frame("train.py(9): get_batch"))
            for _ in range(1_500):
                stack.enter_context(p.frame("texts.py(40): nested"))
            for line, name in ((3, "words"), (9, "times"), (15, "paths")):
                p.host(f"texts.py({line}): {name}", 2_000)

    (finding,) = outcome("host-hotspot", training(parse)).findings
    assert finding.location.function == "nested"


def test_one_that_has_half_of_it_is_the_place(outcome):
    found = outcome("host-hotspot", training(lambda p: spread(p, first_us=4_000))).findings
    assert [one.location.function for one in found] == ["words", "times"]


@pytest.mark.parametrize(
    ("frames", "places"),
    [
        pytest.param(
            (f"{LIBRARY}/generation.py(30): sample", f"{LIBRARY}/masks.py(15): __call__"),
            {"allowed": 5.4, "serve": 4.0},
            id="deep in a library",
        ),
        pytest.param(
            (f"{LIBRARY}/masks.py(15): __call__",),
            {"serve": 7.6, "allowed": 1.8},
            id="called there",
        ),
    ],
)
def test_what_a_library_makes_of_a_callback_is_of_that(outcome, frames, places):
    def answer(p):
        with ExitStack() as around:
            for frame in ("serve.py(57): serve", *frames[:-1]):
                around.enter_context(p.frame(frame))
            p.busy(4_000)  # and operators: no call that is for the callback alone
            with p.row("aten::mm"):
                p.kernel("gemm", 10)
            with p.frame(frames[-1]):
                p.host("serve.py(20): allowed", 1_800)
                p.host("<built-in method tensor of type object at 0x1>", 3_600)

    found = outcome("host-hotspot", training(answer)).findings
    costs = {one.location.function: one.cost_ns_per_step for one in found}
    assert costs == pytest.approx({name: ms * 1e6 for name, ms in places.items()}, rel=0.1)


def test_a_function_with_the_model_in_it_is_no_place(outcome):
    def step(p):
        with p.frame("train.py(9): train_step"):
            p.host("texts.py(3): words", 2_000)
            with p.row("nn.Module: Linear_0", kind=HostKind.MODULE):
                p.busy(20)
            p.host("texts.py(9): times", 1_900)
            p.host("texts.py(15): paths", 1_800)

    found = outcome("host-hotspot", training(step)).findings
    assert [one.location.function for one in found] == ["words", "times"]


def test_an_operator_on_the_cpu(outcome):
    (finding,) = outcome("host-hotspot", training(sorted_on_cpu)).findings
    assert "aten::sort and what is around it work on tensors on the CPU" in finding.summary
    assert finding.location.function == "nucleus"
    assert finding.fix.startswith("Keep the tensor on the device")
    assert "topk" in finding.fix


def test_a_generator_is_part_of_the_function_that_runs_it(outcome):
    def mining(p):
        with p.frame("mine.py(12): hardest"):
            p.busy(2_000)
            with p.frame("<built-in function sum>"):
                p.host("mine.py(21): <genexpr>", 3_000)

    (finding,) = outcome("host-hotspot", training(mining)).findings
    assert finding.location.function == "hardest"
    assert "in hardest (mine.py:12)" in finding.summary
    assert finding.cost_ns_per_step == pytest.approx(5_000_000, rel=0.1)


def test_dispatching_is_no_computing(outcome):
    assert not outcome("host-hotspot", training(dispatch)).findings


def test_python_of_the_framework_is_dispatch(outcome):
    def optimizer(p):
        p.host("torch/optim/adam.py(139): _init_group", 3_000)

    assert not outcome("host-hotspot", training(optimizer)).findings


def test_work_that_names_itself_is_asked_about_elsewhere(outcome):
    def loader(p):
        with p.row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            p.host("data.py(4): __getitem__", 5_000)

    assert not outcome("host-hotspot", training(loader)).findings


@pytest.mark.parametrize(
    ("name", "said"),  # 10 µs of each are recording it
    [
        ("<built-in function collect>", "collects garbage for 4.99 ms a step"),
        ("torch/serialization.py(967): save", "saves or loads tensors for 4.99 ms a step"),
    ],
)
def test_work_that_names_itself(outcome, name, said):
    def named(p):
        with p.frame("train.py(9): after"):
            p.host(name, 5_000)

    (finding,) = outcome("host-hotspot", training(named)).findings
    assert f"{said} in after (train.py:9)" in finding.summary


def test_a_long_call_to_the_driver_and_a_cold_start(outcome):
    def prepares(p):
        with p.frame("train.py(9): prepare"):
            p.call("cudaGraphInstantiate", ApiKind.OTHER, 5_000)

    (finding,) = outcome("host-hotspot", training(prepares)).findings
    assert "is in calls to the driver for 5.00 ms a step in prepare (train.py:9)" in finding.summary
    first = iter((prepares,))
    once = training(lambda p: next(first, lambda _: None)(p))
    assert not outcome("host-hotspot", once).findings


def test_what_the_device_hides_is_not_kept(ranked, outcome):
    trace = training(python_loop, sync=False, kernel_ms=20)
    assert outcome("host-hotspot", trace).findings
    assert "host-hotspot" not in ranked(trace)


def test_one_long_step_is_no_hot_spot(outcome):
    rounds = iter(range(8))

    def now_and_then(p):
        if next(rounds) == 5:
            p.host("index.py(3): rebuild", 40_000)

    assert not outcome("host-hotspot", training(now_and_then)).findings


ROWS_BYTES, UPLOAD_MS, COMPUTE_MS, TABLE_ROWS = 64 << 20, 4, 2, 1 << 20


def fed_by_the_cpu(*, table=TABLE_ROWS, sent=ROWS_BYTES):
    """Wait for a buffer, fill it on the CPU, send it: one function; then the device works."""
    p = Program()
    taken = ROWS_BYTES // 1024
    shapes = [[table, 256], [], [taken], [taken, 256]]
    given = {"shapes": shapes, "dtypes": ["float", "Scalar", "long int", "float"]}
    for _ in p.steps(8):
        with p.frame("features.py(36): fetch"):
            p.sync("cudaEventSynchronize", ApiKind.SYNC_EVENT)
            p.host("aten::index_select", 8_000, kind=HostKind.OPERATOR, **given)
            with p.row("aten::to"), p.row("aten::copy_"):
                p.copy(sent, 1_000 * UPLOAD_MS, MemoryKind.PINNED, MemoryKind.DEVICE)
        with p.row("aten::mm"):
            p.kernel("gemm", 1_000 * COMPUTE_MS)
    return p.trace()


def test_the_copy_of_what_the_cpu_filled_goes_with_it(outcome):
    (finding,) = outcome("host-hotspot", fed_by_the_cpu()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["copies of the result to the device"] == UPLOAD_MS * 1_000_000
    assert "and the result is copied to the device" in finding.summary
    after = replay_step_ns(fed_by_the_cpu(), finding)
    assert after == pytest.approx(COMPUTE_MS * 1e6, rel=0.2)


def test_the_wait_for_the_buffer_is_part_of_it(outcome):
    assert not outcome("explicit-synchronize", fed_by_the_cpu()).findings
    assert outcome("explicit-synchronize", fed_by_the_cpu(sent=1 << 20)).findings


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(fed_by_the_cpu(sent=1 << 20), id="another tensor is sent"),
        pytest.param(fed_by_the_cpu(table=1 << 26), id="a table that the device cannot hold"),
    ],
)
def test_other_copies_stay(outcome, trace):
    (finding,) = outcome("host-hotspot", trace).findings
    assert replay_step_ns(trace, finding) >= (UPLOAD_MS + COMPUTE_MS) * 0.9e6


def replay_step_ns(trace, finding):
    return what_if_mean(trace, finding.changes).step_ns


@pytest.mark.parametrize("stacks", [False, True])
def test_without_stacks_looks_at_the_run_say_where_a_program_on_cpus_computes(outcome, stacks):
    p = TraceBuilder()
    p.devices = []
    for step in range(8):
        p.step(step, step * 10_000_000, 10_000_000)
        if stacks:
            p.python("train.py(9): <module>", step * 10_000_000 + 1, 9_999_998)
        p.op("aten::mm", step * 10_000_000 + 1_000, 3_000_000)
        for call in range(200):  # of 5 µs
            p.op("aten::item", step * 10_000_000 + 4_000_000 + 20_000 * call, 5_000)
    frames = ("data.py(7): <listcomp>", "data.py(7): encode", "train.py(9): <module>")
    loads = ("<frozen importlib._bootstrap>(1178): _find_and_load", "train.py(1): <module>")
    waits = ("threading.py(359): wait", "train.py(30): <module>")
    looked = RunSamples(
        every_s=0.02,
        seconds=1.0,
        looks=50,
        late_median_ns=0,
        cost_ns=0,
        frames=(*frames, *loads, *waits),
        stacks=((0, 1, 2), (2,), (3, 4), (5, 6)),
        threads=(SampledThread("MainThread", True, 40, 0, ((0, 32), (1, 8), (3, 20))),),
        start=((2, 60),),
    )
    trace = replace(p.trace(), run=RunFacts(samples=looked))
    found = outcome("host-hotspot", trace).findings
    if stacks:
        assert not any("looks" in finding.summary for finding in found)
        return
    (finding,) = found
    assert str(finding.location) == "encode (data.py:7)"
    assert "32 of 40 looks" in finding.summary
    low, high = finding.saving_ns_per_step
    # Of 7 ms outside operators or in small ones four fifths, give or take a tenth of all looks.
    assert low == pytest.approx(0.68 * 7_000_000, rel=0.02)
    assert high == pytest.approx(0.89 * 7_000_000, rel=0.02)


def test_operators_of_a_program_on_cpus_are_no_part_of_a_place_in_python(outcome):
    """3 ms of Python in a library between two products of 5 ms each: only these 3 can go."""
    p = TraceBuilder()
    p.devices = []
    for step in range(8):
        begin = step * 14_000_000
        p.step(step, begin, 14_000_000)
        p.python("serve.py(9): answer", begin + 1_000, 13_998_000)
        p.op("aten::mm", begin + 2_000, 5_000_000)
        p.python("transformers/logits.py(7): __call__", begin + 5_100_000, 3_000_000)
        p.op("aten::bmm", begin + 8_200_000, 5_000_000)
    (finding,) = outcome("host-hotspot", p.trace()).findings
    assert str(finding.location) == "answer (serve.py:9)"
    assert "mostly Python in __call__ (transformers/logits.py:7)" in finding.summary
    assert finding.cost_ns_per_step == pytest.approx(3_000_000, rel=0.35)


def test_a_function_that_calls_the_work_is_no_place_in_python(outcome):
    """Between two products of 6 ms it waits 2 ms for a core, which is recorded as its Python."""
    p = TraceBuilder()
    p.devices = []
    for step in range(8):
        begin = step * 14_000_000
        p.step(step, begin, 14_000_000)
        p.python("model.py(9): forward", begin + 1_000, 13_998_000)
        p.python("torch/nn/modules/linear.py(130): forward", begin + 2_000, 6_000_000)
        p.op("aten::linear", begin + 3_000, 5_990_000)
        p.op("aten::linear", begin + 8_000_000, 5_990_000)
    assert outcome("host-hotspot", p.trace()).answer == "clear"


@pytest.mark.parametrize("looks", [200, 20])
def test_looks_at_unrecorded_steps_may_find_more_of_a_function_than_was_recorded(looks):
    """Of steps of 10 ms 4 were recorded in sample; of the thread's time it has six tenths."""
    p = TraceBuilder()
    p.devices = []
    for step in range(8):
        begin = step * 10_000_000
        p.step(step, begin, 10_000_000)
        p.python("train.py(9): train", begin + 1_000, 9_998_000)
        p.op("aten::mm", begin + 2_000, 5_990_000)
        p.python("data.py(5): sample", begin + 5_995_000, 4_000_000)
    at_sample = computing(7, "sample", 6.0, "np.random.choice()")
    at_sample = replace(at_sample, frames=("data.py(7): sample", *at_sample.frames[1:]))
    seen = (at_sample, computing(9, "train", 4.0))
    seen = (replace(seen[0], looks=looks * 3 // 5), replace(seen[1], looks=looks * 2 // 5))
    samples = RunSamples(1.0, 10.0, looks, 0, 0, (), (), (thread(*seen),))
    first = diagnose(replace(p.trace(), run=RunFacts(samples=samples))).found[0]
    assert (first.id, str(first.finding.location)) == ("host-hotspot", "sample (data.py:7)")
    assert first.finding.summary.endswith(", mostly in np.random.choice()")
    recorded, by_looks = with_what_goes(10_000_000, 6_000_000), 4_000_000
    middle = recorded if looks < 100 else (recorded * by_looks) ** 0.5
    assert first.predicted.step_ns == pytest.approx(middle, rel=0.01)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("np.random.choice()", "mostly in np.random.choice()"),
        ("", "mostly Python in sample"),
        ("[]", "mostly Python in sample"),
        ("()", "mostly Python in sample"),
    ],
)
def test_beside_a_device_looks_say_which_call_a_function_is_at(outcome, call, said):
    trace = training(lambda p: p.host("data.py(7): sample", 6_000))
    at_sample = computing(7, "sample", 10.0, call)
    at_sample = replace(at_sample, frames=("data.py(7): sample", *at_sample.frames[1:]))
    samples = RunSamples(1.0, 10.0, 500, 0, 0, (), (), (thread(at_sample),))
    (finding,) = outcome("host-hotspot", replace(trace, run=RunFacts(samples=samples))).findings
    assert finding.summary.endswith(f"while it launches nothing: {said}")


@pytest.mark.parametrize(
    ("call", "said"),
    [("scores.argmax()", False), ("np.argmax()", True), ("hashlib.sha256()", True)],
)
def test_an_operator_is_no_part_of_what_a_function_computes_by_itself(outcome, call, said):
    p = Program()
    p.builder.devices = []
    for _ in p.steps(8):
        p.host("aten::argmax", 100, kind=HostKind.OPERATOR)
        p.host("serve.py(7): pick", 6_000)
    at_line = replace(computing(7, "pick", 10.0, call), frames=("serve.py(7): pick",))
    samples = RunSamples(1.0, 10.0, 500, 0, 0, (), (), (thread(at_line),))
    run = RunFacts(samples=samples)
    (finding,) = outcome("host-hotspot", replace(p.trace(), run=run)).findings
    assert (f"mostly in {call}" in finding.summary) is said


def test_looks_into_torch_are_no_computing_of_the_function_that_calls_it():
    """Six tenths of the looks are in train, five of them in a layer that it calls."""
    p = TraceBuilder()
    p.devices = []
    for step in range(8):
        begin = step * 10_000_000
        p.step(step, begin, 10_000_000)
        p.python("train.py(9): train", begin + 1_000, 9_998_000)
        p.op("aten::mm", begin + 2_000, 5_990_000)
    in_layer = spent(("torch/nn/modules/linear.py(134): forward", "train.py(9): train"), 5.0)
    seen = (in_layer, computing(9, "train", 1.0), computing(40, "other", 4.0))
    at_line = replace(seen[1], frames=("train.py(9): train", *seen[1].frames[1:]))
    samples = RunSamples(1.0, 10.0, 500, 0, 0, (), (), (thread(in_layer, at_line, seen[2]),))
    trace = replace(p.trace(), run=RunFacts(samples=samples))
    assert spent_in_ns(trace, Location("train.py", 9, "train")) == 1_000_000  # of 10 ms


@pytest.mark.parametrize(("held", "ms"), [(1.0, 5.0), (0.0, 3.0)])
def test_looks_that_come_late_at_an_operator_were_due_in_python_before_it(held, ms):
    """Three of ten seconds are seen in mark, two at an operator after the lock was held."""
    p = TraceBuilder()
    p.devices = []
    for step in range(800):
        begin = step * 10_000_000
        p.step(step, begin, 10_000_000)
        p.op("aten::randint", begin + 2_000, 1_000)
    mark = replace(
        computing(9, "mark", 3.0), frames=("serve.py(9): mark", "serve.py(90): <module>")
    )
    drawn = spent(("serve.py(70): step",), 2.0, doing="torch.randint()", held=held)
    model = spent(("serve.py(80): forward",), 5.0, doing="F.linear()")
    looks = thread(mark, drawn, model)
    samples = RunSamples(1.0, 10.0, 500, 0, 0, (), (), (looks,), count=800, total_ns=8 * 10**9)
    trace = replace(p.trace(), run=RunFacts(samples=samples))
    assert spent_in_ns(trace, Location("serve.py", 9, "mark")) == pytest.approx(ms * 1e6)


def test_calls_that_recording_made_long_win_what_looks_found():
    """Of steps of 10 ms 8 were recorded in a loop; of the thread's time it has three tenths."""
    p = TraceBuilder()
    p.devices = []
    for step in range(8):
        begin = step * 10_000_000
        p.step(step, begin, 10_000_000)
        p.op("aten::mm", begin + 2_000, 1_900_000)
        p.python("data.py(5): code", begin + 1_950_000, 8_000_000)
    in_code = replace(computing(7, "code", 3.0), looks=60)
    in_code = replace(in_code, frames=("data.py(7): code", *in_code.frames[1:]))
    seen = (in_code, replace(computing(9, "train", 7.0), looks=140))
    samples = RunSamples(1.0, 10.0, 200, 0, 0, (), (), (thread(*seen),))
    first = diagnose(replace(p.trace(), run=RunFacts(samples=samples))).found[0]
    assert (first.id, str(first.finding.location)) == ("host-hotspot", "code (data.py:7)")
    assert "7.99 ms a step (3.00 ms of those not recorded, by looks)" in first.finding.summary
    assert first.predicted.step_ns == pytest.approx(with_what_goes(10e6, 7e6), rel=0.02)


def test_looks_at_a_long_operator_are_no_place_in_python_and_time_counts(outcome):
    """Of steps of 10 ms 3 are a softmax, at which half of the looks came: they had waited for the
    lock. Of the time elsewhere two thirds passed in remember, though it was seen less often."""
    p = TraceBuilder()
    p.devices = []
    for step in range(8):
        p.step(step, step * 10_000_000, 10_000_000)
        p.op("aten::softmax", step * 10_000_000 + 1_000, 3_000_000)
    at_softmax = ("play.py(54): rollout", "play.py(90): <module>")
    remembers = ("copy.py(9): deepcopy", "play.py(30): remember", *at_softmax)
    observes = ("play.py(20): observe", *at_softmax)
    seen = (
        (at_softmax, "input.softmax()", 30, 300_000),
        (remembers, "", 14, 400_000),
        (observes, "", 16, 200_000),
    )
    frames = tuple(dict.fromkeys(frame for stack, *_ in seen for frame in stack))
    looked = RunSamples(
        every_s=0.02,
        seconds=1.0,
        looks=60,
        late_median_ns=0,
        cost_ns=0,
        frames=frames,
        stacks=tuple(tuple(map(frames.index, stack)) for stack, *_ in seen),
        threads=(
            SampledThread(
                "MainThread",
                True,
                60,
                0,
                tuple((row, looks) for row, (_, _, looks, _) in enumerate(seen)),
                tuple(Spent(stack, doing, n, us, us, us) for stack, doing, n, us in seen),
            ),
        ),
    )
    (finding,) = outcome("host-hotspot", replace(p.trace(), run=RunFacts(samples=looked))).findings
    assert str(finding.location) == "remember (play.py:30)"
    assert "14 of 30 looks" in finding.summary
    # Half of 7 ms by looks, a sixth more or less; of the thread's whole time four ninths.
    low, high = finding.saving_ns_per_step
    assert low == pytest.approx(0.32 * 7_000_000, rel=0.02)
    assert high == pytest.approx(10_000_000 * 4 / 9, rel=0.001)


def test_without_stacks_looks_say_what_keeps_a_device_waiting(outcome):
    p = TraceBuilder()
    for step in range(8):
        p.step(step, step * 10_000_000, 10_000_000)
        p.op("aten::mm", step * 10_000_000 + 8_000_000, 100_000)
        p.launch(
            step * 10_000_000 + 8_010_000, 10_000, "gemm", step * 10_000_000 + 8_050_000, 900_000
        )
    looked = RunSamples(
        every_s=0.02,
        seconds=1.0,
        looks=50,
        late_median_ns=0,
        cost_ns=0,
        frames=("bpe.py(66): join", "bpe.py(78): word", "train.py(9): <module>"),
        stacks=((0, 1, 2), (1, 2), (2,)),
        threads=(SampledThread("MainThread", True, 40, 0, ((0, 14), (1, 18), (2, 8))),),
    )
    (finding, *_) = outcome(
        "host-hotspot", replace(p.trace(), run=RunFacts(samples=looked))
    ).findings
    assert str(finding.location) == "word (bpe.py:78)"  # with what it calls
    assert "32 of 40 looks" in finding.summary
    assert finding.summary.endswith("in Python while the device has nothing to do")


def test_looks_that_waited_for_the_lock_at_an_operator_name_no_place(outcome):
    """And those at our own callback after a collection are the collector's, where it began."""
    p = TraceBuilder()
    for step in range(8):
        p.step(step, step * 10_000_000, 10_000_000)
        p.op("aten::div_", step * 10_000_000 + 8_000_000, 100_000)
        p.launch(
            step * 10_000_000 + 8_010_000, 10_000, "gemm", step * 10_000_000 + 8_050_000, 900_000
        )
    grams, accept = "guard.py(149): seen_ngrams", "guard.py(222): accept"
    ours = "pinchpoint/capture/samples/spans.py(69): _collects"
    spent = (
        Spent((grams, accept), "table.setdefault()", 10, 200_000, 200_000, 200_000),
        Spent((ours, grams, accept), "", 6, 120_000, 120_000, 120_000),
        Spent((accept,), "logits.div_()", 20, 400_000, 400_000, 380_000),
    )
    looked = RunSamples(
        every_s=0.02,
        seconds=1.0,
        looks=36,
        late_median_ns=0,
        cost_ns=0,
        count=100,
        frames=(ours, grams, accept),
        stacks=((1, 2), (0, 1, 2), (2,)),
        threads=(SampledThread("MainThread", True, 36, 0, ((0, 10), (1, 6), (2, 20)), spent),),
    )
    trace = replace(p.trace(), run=RunFacts(samples=looked))
    (finding, *_) = outcome("host-hotspot", trace).findings
    assert str(finding.location) == "seen_ngrams (guard.py:149)"
    assert "16 of 16 looks" in finding.summary


HOOK, HELD = "pinchpoint/capture/samples/whole_run.py(97): _stepped", "threading.py(300): notify"


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        (("train.py(7): encode",), True),
        ((HOOK,), False),
        ((HOOK, HELD), False),
        ((HOOK, "train.py(7): encode"), True),
    ],
    ids=["own", "recording", "recording in Python's library", "own under a hook"],
)
def test_recording_is_no_place_of_the_program(outcome, frames, named):
    p = Program()
    for _ in p.steps(6):
        for _ in range(3):
            p.kernel("gemm", 100)
        with ExitStack() as around:
            for frame in frames:
                around.enter_context(p.frame(frame))
            p.busy(5_000)
    found = outcome("host-hotspot", p.trace()).findings
    assert [str(one.location) for one in found] == ["encode (train.py:7)"] * named
    looked = own_frame((*reversed(frames), "train.py(40): step"))
    assert (None if looked is None else looked.function) == ("encode" if named else None)


def test_a_place_whose_recording_cost_as_much_as_it_took_has_a_name_of_its_own():
    assert _mostly(np.array([7, 7, 9]), np.array([-5, 1, -1])) == 9
    assert _mostly(np.array([3], np.uint8), np.array([-2])) == 3
