"""What bounds a step, said in one sentence."""

from dataclasses import replace

import pytest

import pinchpoint as pp
from builders import TraceBuilder
from pinchpoint.analysis.replay.binding import Binding, Bound
from pinchpoint.diagnosis import verdict as module
from pinchpoint.diagnosis.verdict import verdict
from pinchpoint.trace import HostKind, RunFacts, RunSamples, ThreadDeath
from pinchpoint.trace.run_samples import SampledThread
from sampled_runs import SAVING, sampled, samples


@pytest.fixture
def trace():
    """Steps of 100 µs with 60 µs of matrix products."""
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100_000, 90_000)
        b.op("aten::mm", i * 100_000 + 1_000, 38_000)
        b.launch(i * 100_000 + 30_000, 5_000, "sgemm", i * 100_000 + 36_000, 60_000)
    return b.trace()


def facts(by, **ratios):
    shares = dict.fromkeys(("device", "communication", "copies", "input", "host", "other"), 0.0)
    shares |= ratios
    return Bound(by, *shares.values(), empty_queue_ratio=None, median_depth=None)


@pytest.mark.parametrize(
    ("bound", "begins", "says"),
    [
        (facts(Binding.DEVICE, device=0.93), "The device bounds", "93 % of it"),
        (
            facts(Binding.DEVICE, device=0.64, other=0.36),
            "The device works 64 %",
            "For 36 % it waits and the host does not explain it",
        ),
        (facts(Binding.HOST, host=0.4), "The host bounds", "idle 40 % of it"),
        (facts(Binding.INPUT, input=0.6), "The input pipeline bounds", "60 % of it"),
        (facts(Binding.COMMUNICATION, communication=0.3), "Communication bounds", "30 % of it"),
        (facts(Binding.COPIES, copies=0.3), "Copies bound", "30 % of it"),
        (
            facts(Binding.MIXED, host=0.3, input=0.25, device=0.4),
            "Two things hold this step up",
            "host (30 % of it) and input (25 %)",
        ),
        (
            facts(Binding.HOST, host=0.3, device=0.7),
            "The device works 70 %",
            "The host holds it up",
        ),
        (
            facts(Binding.INPUT, input=0.3, device=0.7),
            "The device works",
            "batch holds it up for 30 %",
        ),
        (
            facts(Binding.COMMUNICATION, communication=0.3, device=0.7),
            "The device works 70 % of this step, mostly on matrix products",
            "Communication holds it up for 30 %",
        ),
        (facts(Binding.COPIES, copies=0.3, device=0.7), "The device works", "Copies hold it up"),
        (facts(Binding.UNKNOWN, other=0.8), "The device is idle 80 % of this step", "not explain"),
    ],
)
def test_each_resource_has_its_sentence(trace, monkeypatch, bound, begins, says):
    monkeypatch.setattr(module, "bound", lambda trace: bound)
    sentence = verdict(trace)
    assert sentence.startswith(begins)
    assert says in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::mm", "matrix products"),
        ("aten::convolution_backward", "convolution"),
        ("aten::native_batch_norm", "normalisation"),
    ],
)
def test_a_recording_without_a_device(operator, kind):
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100, 100)
        b.op(operator, i * 100, 90)
    said = verdict(b.trace(device_ops=None, api_calls=None))
    assert said == (
        f"No device activity was recorded. On the host most of the step: operators: {kind} (90 %)."
    )


def test_operators_of_no_known_kind_are_named():
    b = TraceBuilder()
    b.devices = []
    for i in range(4):
        b.step(i, i * 1000, 1000)
        b.op("aten::_fft_r2c", i * 1000, 500)
        b.op("aten::mm", i * 1000 + 500, 200)
        b.op("custom::roll", i * 1000 + 700, 200)
    assert verdict(b.trace(device_ops=None, api_calls=None)) == (
        "No device activity was recorded. On the host most of the step: other operators (70 %)."
        " Mostly these are aten::_fft_r2c (50 %) and custom::roll (20 %)."
    )


def test_a_recording_of_nothing():
    assert verdict(TraceBuilder().trace()) == ""


def test_ranges_alone_say_how_long_each_phase_is():
    b = TraceBuilder()
    for i in range(20):
        b.annotation("data_loading", i * 40, 10)
        b.annotation("forward_pass", i * 40 + 10, 28)
    said = verdict(b.trace())
    assert "only ranges: forward_pass (70 %), data_loading (25 %)" in said


MS = 1_000_000
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def batches(*lasting_ms, begun=True, worker="Multi"):
    """Waits for batches on a CPU, operators of 2 ms after each, and the end of the workers."""
    b, at = TraceBuilder(), 10 * MS
    if begun:
        b.python("torch/utils/data/dataloader.py(422): _get_iterator", 0, 9 * MS)
    for lasts in lasting_ms:
        b.annotation(NEXT.replace("Multi", worker), at, lasts * MS)
        b.op("aten::mm", at + lasts * MS, 2 * MS)
        at += (lasts + 2) * MS
    b.python("torch/utils/data/dataloader.py(1572): _shutdown_workers", at, 100 * MS)
    return verdict(b.trace())


def test_what_a_loader_does_once_is_said_where_it_is_most_of_the_waiting():
    assert (
        " The start of the loader's workers, with the first batch, takes 500 ms, and their end"
        " 100 ms: once, and not for each batch."
    ) in batches(500)
    assert "takes 500 ms" in batches(500, 5, begun=False)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(batches(500, begun=False), id="the only batch may be slow"),
        pytest.param(batches(500, 400), id="the second is slow as well"),
        pytest.param(batches(500, worker="Single"), id="no workers"),
    ],
)
def test_a_slow_batch_is_no_start_of_workers(said):
    assert "next batch" in said
    assert "The start of the loader's workers" not in said


def test_devices_that_take_turns_do_not_bound_the_step():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 400, 400)
        for device in range(4):
            at = i * 400 + device * 100
            b.launch(at, 1, "cutlass_gemm", at, 100, device=device)
    assert verdict(b.trace()).startswith("The devices take turns: together they work 100 %")


def test_one_kernel_is_too_little_for_a_bound():
    b = TraceBuilder()
    b.op("aten::add", 0, 1_500_000)
    b.launch(1_240_000, 47_000, "add", 1_290_000, 1_760)
    assert verdict(b.trace()) == "Too little ran on the device to say what bounds this program."


def test_a_host_that_was_not_recorded_is_not_called_idle():
    b = TraceBuilder()
    for at in (0, 99_000):
        b.op("layer", at, 1_000, kind=HostKind.ANNOTATION)
    said = verdict(b.trace())
    assert "for 100 % of the time nothing that the host did either: what it went" in said
    said = verdict(replace(b.trace(), run=RunFacts(samples=waits_in_compute(looks=20))))
    assert said.endswith("20 of 20 looks at it find it waiting in compute (features.py:53).")


def waits_in_compute(looks):
    thread = SampledThread("MainThread", True, looks, 0, ((0, looks),))
    return RunSamples(
        every_s=0.1,
        seconds=looks / 10,
        looks=looks,
        late_median_ns=0,
        cost_ns=0,
        frames=("threading.py(320): wait", "features.py(53): compute"),
        stacks=((0, 1),),
        threads=(thread,),
    )


def test_a_host_outside_its_operators_is_asked_for_stacks():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100_000, 99_000)
        b.op("aten::mm", i * 100_000 + 1_000, 8_000)
    assert "Python stacks (with_stack=True) would show" in verdict(b.trace())


def test_recorded_steps_that_are_quicker_than_the_runs_are_called_so(trace):
    assert "quick" not in verdict(trace)
    slower = replace(trace, run=RunFacts(unprofiled_step_ns=(300_000,) * 9))
    assert "timed without the profiler take 300 µs" in verdict(slower)


def test_without_a_device_the_window_for_names_says_which_function_takes_most():
    def steps(with_stacks):
        builder = TraceBuilder()
        for number in range(6):
            builder.step(number, number * 100_000, 99_000)
            builder.op("aten::mm", number * 100_000 + 90_000, 8_000)
            if with_stacks:
                builder.python("train.py(15): accuracy", number * 100_000 + 2_000, 80_000)
                builder.python("feed.py(3): wait", number * 100_000, 99_000, thread=7)
        return builder.trace()

    said = verdict(replace(steps(False), run=RunFacts(named=steps(True))))
    assert "is in accuracy (train.py:15)." in said
    assert "accuracy" not in verdict(steps(False))


def test_the_function_that_holds_the_loop_is_not_the_place_of_its_steps():
    builder = TraceBuilder()
    builder.python("train.py(80): main", 0, 600_000)
    for number in range(6):
        builder.step(number, number * 100_000, 99_000)
        builder.op("aten::mm", number * 100_000 + 90_000, 8_000)
        builder.python("train.py(15): accuracy", number * 100_000 + 2_000, 30_000)
    named = builder.trace()
    said = verdict(replace(named, run=RunFacts(named=named)))
    assert "30 % of it is in accuracy (train.py:15)." in said


def test_stacks_are_not_asked_for_where_the_run_has_them():
    def on_cpu(named):
        b = TraceBuilder()
        for i in range(4):
            b.step(i, i * 100_000, 100_000)
            b.op("aten::mm", i * 100_000 + 1_000, 9_000)
            if named:
                for n in range(8):  # none takes most
                    b.python(f"train.py({n}): part_{n}", i * 100_000 + (n + 2) * 10_000, 9_000)
        return b.trace()

    bare = on_cpu(named=False)
    assert "Python stacks" in verdict(bare)
    run = RunFacts(named=on_cpu(named=True))
    assert "Python stacks" not in verdict(replace(bare, run=run))


def test_far_steps_that_hold_most_of_the_mean_step_come_first():
    said = verdict(sampled(samples(SAVING)))
    first, second = said.split(". ")[:2]
    assert first == (
        "Every 5 steps one takes 504 ms instead of 27.0 ms: save (train.py:88), in torch.save,"
        " 91 % of the mean step"
    )
    assert second.startswith("The device bounds the typical step")
    assert "But that is the typical step" in verdict(sampled(samples(SAVING, far_ms=60)))


def test_of_kernels_of_no_known_kind_the_heaviest_is_named():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100_000, 90_000)
        b.launch(i * 100_000, 5_000, "Fan1(float*, int)", i * 100_000 + 6_000, 18_000)
        b.launch(i * 100_000 + 6_000, 5_000, "Fan2(float*, int)", i * 100_000 + 24_000, 72_000)
    heaviest = "mostly on other kernels (100 %). Of the time of these kernels, Fan2 takes 80 %."
    assert heaviest in verdict(b.trace())
    b.launch(-500_000, 5_000, "Fan0(float*)", -490_000, 480_000)  # before the steps
    assert "Fan2 takes 80 %" in verdict(b.trace())


def test_the_collective_that_takes_most_is_named():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100_000, 90_000)
        for at, name, lasts in (
            (10_000, "ncclDevKernel_Broadcast_RING", 60_000),
            (75_000, "ncclDevKernel_AllReduce_RING", 10_000),
        ):
            b.launch(i * 100_000 + at, 5_000, name, i * 100_000 + at + 1_000, lasts)
    said = verdict(b.trace())
    assert said.startswith("Communication bounds this step")
    assert "Of the time of its 2 collectives, ncclDevKernel_Broadcast_RING takes 86 %." in said


def test_ranges_of_the_program_name_the_time_of_which_nothing_else_was_recorded():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 100_000_000, 90_000_000)
        for layer in range(6):
            at = i * 100_000_000 + 1_000_000 + 13_000_000 * layer
            b.annotation(f"fetch_layer_{layer}", at, 12_000_000)
        b.launch(i * 100_000_000 + 80_000_000, 5_000, "sgemm", i * 100_000_000 + 80_006_000, 60_000)
    said = verdict(b.trace())
    assert "The program's own ranges of that time: fetch_layer_# (80 %)." in said


def test_a_report_of_kernels_alone_says_what_was_profiled(tmp_path):
    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    head += '"Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit",'
    head += '"Metric Value"\n'
    row = '"{}","7","a","h","gemm(float*)","1","7","(256, 1, 1)","(32, 1, 1)","0","12.0",'
    roofline = row + '"Roofline","SM Frequency","Ghz","1.2"\n'
    lasts = row + '"GPU Speed Of Light Throughput","Duration","us","{}"\n'
    path = tmp_path / "ncu.csv"
    path.write_text(head + roofline.format(0) + roofline.format(1), "utf-8")
    assert verdict(pp.load(path)) == (
        "2 launches of gemm were profiled, and what each took was not collected:"
        " ncu --section SpeedOfLight collects it."
    )
    path.write_text(head + lasts.format(0, 30) + lasts.format(1, 10), "utf-8")
    assert verdict(pp.load(path)) == "2 launches of gemm were profiled, 40.0 µs altogether."


def test_launches_that_compile_are_named_and_a_first_one_that_loads_is_not():
    for slow, said_of in ((4, True), (1, False)):
        b = TraceBuilder()
        for i in range(4):
            b.step(i, i * 10_000_000, 9_000_000)
            for n in range(6):
                at = i * 10_000_000 + 100_000 + 1_400_000 * n
                takes = 1_000_000 if n < slow else 5_000
                b.launch(at, takes, "add", at + takes + 2_000, 10_000)
        said = verdict(b.trace())
        assert ("cudaLaunchKernel: it compiles, loads or waits there" in said) == said_of


def test_how_long_slow_launches_take_is_said_of_those_alone():
    b = TraceBuilder()
    for i in range(4):
        b.step(i, i * 10_000_000, 9_000_000)
        for n in range(5):
            at = i * 10_000_000 + 100_000 + 1_700_000 * n
            b.launch(at, 1_000_000 if n else 5_000, "add", at + 1_002_000, 10_000)
    assert "yet 4 a step take 1.00 ms each, 45 % of it, in cudaLaunchKernel" in verdict(b.trace())


def test_threads_that_died_are_said_before_all_else(trace):
    first = ThreadDeath(
        "model", "RuntimeError: no arguments.", ("serve.py", 111, "serve"), 3_200_000_000
    )
    later = replace(first, thread="client")
    run = RunFacts(deaths=(first, later), deaths_count=7)
    said = verdict(replace(trace, run=run))
    assert said == (
        "Thread model of the program was ended by RuntimeError: no arguments, in serve"
        f" (serve.py:111), 3.2 s after the program began; 6 more did later. {verdict(trace)}"
    )
    alone = RunFacts(deaths=(replace(first, place=None),), deaths_count=1)
    assert verdict(replace(trace, run=alone)).startswith(
        "Thread model of the program was ended by RuntimeError: no arguments, 3.2 s after the"
        " program began. "
    )
