"""Silence of the rules is not health: what is said where nothing was found."""

import os

import msgspec
import pytest

from pinchpoint.diagnosis.finding import Location, NotShown, Unanswered
from pinchpoint.diagnosis.record import Need
from pinchpoint.errors import UsageError
from pinchpoint.report.assemble.findings import chosen
from pinchpoint.report.documents.causal import PieceInfo
from pinchpoint.report.documents.ranks import JobInfo, JobSteps, RanksReport, ScalingItem
from pinchpoint.report.words.breakdown import device_work
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.report.words.ranks import closing
from pinchpoint.run_folder.documents import RunDocument
from pinchpoint.serve import live
from report_sample import MS, full_report, healthy_report, part

HEALTHY = "Nothing worth fixing here: no cause is worth 3 % of the step."


def with_parts(*parts, **changes):
    return msgspec.structs.replace(healthy_report(), breakdown=parts, **changes)


def test_a_busy_device_is_healthy():
    report = with_parts(
        part("gemm", "gemm", "device", 90), part("idle-python", "idle-python", "idle", 10)
    )
    assert closing_sentence(report) == HEALTHY


def test_a_window_shorter_than_the_loaders_queue_is_said():
    short = Unanswered(
        id="dataloader-starved", why="", record="16 steps or more", needs=Need.LONGER
    )
    report = with_parts(part("gemm", "gemm", "device", 90), not_checked=(short,))
    assert closing_sentence(report) == (
        f"{HEALTHY} Whether the loader keeps up does not show: its queue may have been full when"
        " the recording began. To see it, record 16 steps or more."
    )


def test_a_step_that_waits_for_batches_shows_that_the_loader_does_not_keep_up():
    short = Unanswered(id="dataloader-starved", why="", record="16 steps", needs=Need.LONGER)
    waits = (part("host-data", "waits", "host", 95), part("host-python", "Python", "host", 5))
    sentence = closing_sentence(with_parts(*waits, device=None, not_checked=(short,)))
    assert "passes outside operators, mostly: waits." in sentence
    assert "does not show" not in sentence


def test_idle_time_that_no_rule_explains_is_not_called_healthy():
    report = with_parts(
        part("gemm", "gemm", "device", 65),
        part("idle-python", "idle-python", "idle", 25),
        part("idle-sync", "idle-sync", "idle", 10),
    )
    sentence = closing_sentence(report)
    assert "for 35 % of it the device is idle, mostly: idle-python." in sentence
    assert sentence.endswith("No rule explains that.")


def test_the_device_that_communicates_is_not_called_idle():
    waits = part("idle-python", "idle-python", "idle", 50)
    talks = part("exposed-communication", "communication", "exposed", 30)
    works = part("gemm", "gemm", "device", 20)
    assert "for 80 % of it the device computes nothing" in closing_sentence(
        with_parts(waits, talks, works)
    )
    alone = closing_sentence(with_parts(waits, works))
    assert "for 71 % of it the device is idle" in alone


def test_idle_is_said_of_what_was_recorded():
    report = with_parts(
        part("gemm", "gemm", "device", 10),
        part("idle-python", "idle-python", "idle", 10),
        part("not-recorded", "longer steps of the run, not recorded", "outside", 80),
    )
    assert "idle 50.0 % of the step as far as it was recorded" in device_work(report)


def test_what_was_not_recorded_no_rule_could_explain():
    report = with_parts(part("host-unrecorded", "host-unrecorded", "host", 100), device=None)
    assert closing_sentence(report).endswith("Nothing recorded explains it.")


def test_a_recording_without_steps_that_is_mostly_a_start_says_so():
    steps = msgspec.structs.replace(healthy_report().steps, how="none")
    parts = [
        part(f"idle-{what}", f"idle: {what}", "idle", ms)
        for what, ms in (("malloc", 50), ("code-load", 20), ("python", 25))
    ]
    worked = part("gemm", "gemm", "device", 5)
    sentence = closing_sentence(with_parts(*parts, worked, steps=steps))
    assert sentence.endswith(
        "mostly: malloc. 70.0 ms are what a process does once (malloc and code-load). What repeats,"
        " a recording of later steps would show."
    )
    repeats = closing_sentence(with_parts(*parts, worked))
    assert repeats.endswith("No rule explains that.")


def test_allocations_alone_may_come_in_each_round_and_are_no_start():
    steps = msgspec.structs.replace(healthy_report().steps, how="none")
    parts = [
        part(f"idle-{what}", f"idle: {what}", "idle", ms)
        for what, ms in (("malloc", 90), ("code-load", 5))
    ]
    sentence = closing_sentence(with_parts(*parts, part("gemm", "gemm", "device", 5), steps=steps))
    assert "does once" not in sentence


def test_a_recording_without_steps_that_compiles_says_so_without_a_device():
    steps = msgspec.structs.replace(healthy_report().steps, how="none")
    parts = [
        part(f"host-{what}", what, "host", ms) for what, ms in (("compile", 90), ("python", 10))
    ]
    sentence = closing_sentence(with_parts(*parts, steps=steps, device=None))
    assert "mostly: compile. 90.0 ms are what a process does once (compile)." in sentence


def test_start_latency_is_the_price_of_having_operations():
    report = with_parts(
        part("gemm", "gemm", "device", 80),
        part("idle-start-latency", "idle-start-latency", "idle", 20),
    )
    assert closing_sentence(report) == HEALTHY


def test_without_a_device_waiting_for_the_batch_is_not_called_healthy():
    parts = (part("host-gemm", "host-gemm", "host", 9), part("host-data", "host-data", "host", 91))
    sentence = closing_sentence(with_parts(*parts, device=None))
    assert "yet 91 % of it passes outside operators" in sentence


def test_further_causes_are_only_denied_where_they_were_checked():
    sentence = "No other cause that was checked is worth 3 % of the step."
    assert closing_sentence(full_report()) == sentence


@pytest.mark.parametrize(("ratio", "word"), [(0.036, "surely "), (0.02, ""), (None, "")])
def test_what_was_seen_and_may_be_worth_it_is_not_denied(ratio, word):
    """3.6 % that its rule tells from 5 % on: no cause is surely worth 3 %."""
    seen = (NotShown(id="python-gc", why="smaller than 5 % of the step", step_ratio=ratio),)
    report = msgspec.structs.replace(full_report(), not_shown=seen)
    assert closing_sentence(report) == (
        f"No other cause that was checked is {word}worth 3 % of the step."
    )
    report = msgspec.structs.replace(healthy_report(), not_shown=seen)
    healthy = HEALTHY if not word else "No cause that was checked is surely worth 3 % of the step."
    assert closing_sentence(report) == healthy


def test_showing_a_finding_of_a_healthy_recording_has_a_next_step():
    with pytest.raises(UsageError) as caught:
        chosen(healthy_report(), "1")
    assert caught.value.hint == "findings: none in this recording"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_the_live_view_reads_no_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    names, rows = live._tail(pipe)
    assert (names, list(rows)) == ([], [])
    assert live._document(pipe, RunDocument) == RunDocument()


def operator(name, device_ms, **more):
    """A piece of a step of 100 ms."""
    values = {
        "by": "operator", "place": None, "calls": 1.0, "occupied_ns": device_ms * MS, "host_ns": 0,
        "hidden_ns": 0, "limit_ns": None, "needed_bytes": None, "step_if_free_ns": 0,
        "step_at_limit_ns": 100 * MS, "step_without_host_ns": 100 * MS,
    }  # fmt: skip
    return PieceInfo(name=name, device_ns=device_ms * MS, **values | more)


def test_an_operator_far_from_its_limit_is_not_called_healthy():
    far = operator("aten::sort", 60, limit_ns=10 * MS, step_at_limit_ns=50 * MS, known="it sorts",
                   instead="Use topk")  # fmt: skip
    report = with_parts(part("gemm", "gemm", "device", 100), far_from_limit=far)
    assert closing_sentence(report) == (
        "No cause that was checked is worth 3 % of the step, yet aten::sort takes 60.0 ms a step"
        " where 10.0 ms would do: at its limit the step would be 50.0 ms. It is slow because it"
        " sorts. Use topk."
    )


def test_an_operator_without_a_limit_leaves_the_answer_open():
    open_ = operator("aten::_cudnn_rnn", 65)
    report = with_parts(part("gemm", "gemm", "device", 100), without_limit=open_)
    assert closing_sentence(report) == (
        "No cause that was checked is worth 3 % of the step. How fast aten::_cudnn_rnn, 65 % of the"
        " step, could be is not known."
    )


def test_the_function_with_most_of_the_devices_work_is_named_where_nothing_else_is():
    line = operator("forward (moe.py:57)", 60, calls=48.0, limit_ns=50 * MS,
                    step_if_free_ns=41 * MS)  # fmt: skip
    report = with_parts(part("gemm", "gemm", "device", 100), heaviest_line=line)
    assert closing_sentence(report) == (
        "No cause that was checked is worth 3 % of the step. Most of the device's work is that of"
        " forward (moe.py:57): 60.0 ms a step in 48 operations, of which the machine needs 50.0 ms."
        " Without it the step would be 41.0 ms: is all of it needed?"
    )


@pytest.mark.parametrize(
    ("device_ms", "limit_ms", "free_ms", "end"),
    [
        (98, 90, 0, ", near the machine's limit for it: to be shorter, it has to be less."),
        (98, 40, 0, ", of which the machine needs 40.0 ms. Little else is in the step: is all of it"
                    " needed?"),
        (98, None, 2, ". Little else is in the step: is all of it needed?"),
    ],
)  # fmt: skip
def test_work_at_the_limit_can_only_be_less(device_ms, limit_ms, free_ms, end):
    limit_ns = None if limit_ms is None else limit_ms * MS
    line = operator("forward (moe.py:57)", device_ms, calls=48.0, limit_ns=limit_ns,
                    step_if_free_ns=free_ms * MS)  # fmt: skip
    report = with_parts(part("gemm", "gemm", "device", 100), heaviest_line=line)
    assert closing_sentence(report).endswith(f"98.0 ms a step in 48 operations{end}")


def test_kernels_that_nobody_knows_the_work_of_are_not_called_healthy():
    unknown = with_parts(part("gemm", "gemm", "device", 100), without_limit_ratio=0.9)
    assert closing_sentence(unknown) == (
        "No cause that was checked is worth 3 % of the step. For 90 % of the kernels' time the"
        " recording does not show what they compute, so how fast it could be is not known."
    )
    known = with_parts(part("gemm", "gemm", "device", 100), without_limit_ratio=0.4)
    assert closing_sentence(known) == HEALTHY


def test_beside_findings_it_is_named_while_they_win_little_and_are_about_other_places():
    line = operator("forward (moe.py:57)", 60, calls=48.0, step_if_free_ns=41 * MS)
    report = msgspec.structs.replace(
        full_report(), breakdown=(part("gemm", "gemm", "device", 100),), heaviest_line=line
    )
    little = msgspec.structs.replace(report, together_ns=80 * MS)
    assert "Most of the device's work is that of forward (moe.py:57)" in closing_sentence(little)
    much = msgspec.structs.replace(report, together_ns=70 * MS)
    assert "Most of the device's work" not in closing_sentence(much)
    place = Location(file="moe.py", line=57, function="forward")
    found = (msgspec.structs.replace(report.findings[0], location=place), *report.findings[1:])
    told = msgspec.structs.replace(little, findings=found)
    assert "Most of the device's work" not in closing_sentence(told)


def unanswered(needs, count):
    return tuple(
        Unanswered(id=f"cause-{i}", why="no rows", record="record them", needs=needs)
        for i in range(count)
    )


@pytest.mark.parametrize(
    ("needs", "said"),
    [(Need.CPU_AND_DEVICE, "None of the 2 causes that could be checked"), (Need.COUNTERS, HEALTHY)],
)
def test_health_is_not_said_where_most_causes_could_have_been_recorded(needs, said):
    report = msgspec.structs.replace(
        healthy_report(), clear=("a", "b"), not_checked=unanswered(needs, 10)
    )
    sentence = closing_sentence(report)
    assert sentence.startswith(said)
    if needs is Need.CPU_AND_DEVICE:
        assert "10 others could not, for want of CPU and device activity" in sentence
        assert sentence.endswith("pinchpoint run train.py")


def test_of_what_xla_compiled_for_the_cpu_the_longest_line_is_said():
    line = operator("dot.3", 0, calls=101.0, step_if_free_ns=12 * MS, host_ns=88 * MS)
    line = msgspec.structs.replace(line, place="net.py:61")
    report = msgspec.structs.replace(
        healthy_report(),
        device=None,
        clear=("a", "b"),
        not_checked=unanswered(Need.CPU_AND_DEVICE, 10),
        heaviest_line=line,
    )
    assert closing_sentence(report) == (
        "None of the 2 causes that could be checked is worth 3 % of the step; 10 others are about"
        " devices, or about operators that it does not have. The host computes longest in dot.3 in"
        " net.py:61: 88 % of the step in 101 calls."
    )


def test_a_cause_that_fits_and_is_not_decided_leaves_the_answer_open():
    why, record = "which tokens are padding does not show", "the lengths"
    open_ = Unanswered(id="padding-waste", why=why, record=record, fits=True)
    report = with_parts(part("gemm", "gemm", "device", 100), not_checked=(open_,))
    assert closing_sentence(report) == (
        "No cause that was checked is worth 3 % of the step. Undecided is padding-waste: which"
        " tokens are padding does not show. What would tell: the lengths."
    )


@pytest.mark.parametrize(("waiting", "judged"), [(45, False), (45, True), (2, False)])
def test_waits_of_a_job_that_nobody_judged_are_no_health(waiting, judged):
    report = RanksReport(
        job=JobInfo(ranks=2),
        steps=JobSteps(typical_ns=100 * MS),
        scaling=ScalingItem(
            efficiency_ratio=0.5, waiting_ns_per_step=waiting * MS, transfer_ns_per_step=0, limit=""
        ),
        not_checked=() if judged else (Unanswered(id="straggler-rank", why="busy"),),
    )
    unknown = waiting == 45 and not judged
    assert ("could not be told" in closing(report)) == unknown
    assert (closing(report) == HEALTHY) == (not unknown)


@pytest.mark.parametrize(
    ("kind", "group", "said"),
    [
        ("idle-unrecorded", "idle", "the devices are idle, mostly: idle-unrecorded. Nothing rec"),
        ("idle-python", "idle", "the devices are idle, mostly: idle-python. No rule explains"),
        ("host-data", "host", "no operator runs, mostly: host-data. No rule explains"),
    ],
)
def test_a_job_whose_ranks_all_stand_still_is_not_called_healthy(kind, group, said):
    def job(still_ms):
        return RanksReport(
            job=JobInfo(ranks=2),
            steps=JobSteps(typical_ns=100 * MS),
            breakdown=(part(kind, kind, group, still_ms), part("gemm", "", "", 100 - still_ms)),
            scaling=ScalingItem(
                efficiency_ratio=1.0, waiting_ns_per_step=0, transfer_ns_per_step=0, limit=""
            ),
        )

    assert f"yet for 90 % of it {said}" in closing(job(90)).replace("90.0", "90")
    assert closing(job(10)) == HEALTHY


def test_without_a_device_the_operator_that_the_host_computes_longest_is_named():
    longest = operator("aten::convolution_backward", 0, host_ns=58 * MS, step_if_free_ns=42 * MS,
                       place="train (net.py:9)", limit_ns=20 * MS)  # fmt: skip
    report = with_parts(
        part("host-convolution", "operators: convolution", "host", 100),
        heaviest_line=longest, device=None, not_applicable=("launch-bound",),
    )  # fmt: skip
    assert closing_sentence(report).endswith(
        "(1 others are causes on devices). The host computes longest in aten::convolution_backward"
        " in train (net.py:9): 58 % of the step."
    )


def test_what_is_true_of_a_part_of_an_operators_calls_is_said_of_that_part():
    longest = operator("aten::mm", 0, host_ns=61 * MS, step_if_free_ns=39 * MS, calls=75.0,
                       place="step (muon.py:25)", place_ratio=0.88, shapes="[[512,512]]",
                       shapes_ratio=0.5)  # fmt: skip
    report = with_parts(
        part("host-matrix", "operators: matrix products", "host", 100),
        heaviest_line=longest, device=None, not_applicable=("launch-bound",),
    )  # fmt: skip
    assert closing_sentence(report).endswith(
        "longest in aten::mm: 61 % of the step in 75 calls (88 % of that in step (muon.py:25) and"
        " 50 % of that of [[512,512]])."
    )
    of_many = msgspec.structs.replace(longest, place_ratio=0.12, shapes_ratio=0.4)
    report = msgspec.structs.replace(report, heaviest_line=of_many)
    assert closing_sentence(report).endswith("longest in aten::mm: 61 % of the step in 75 calls.")


@pytest.mark.parametrize("outside", [60, 5])
def test_beside_findings_growth_that_is_not_decided_is_said_where_most_is_in_longer_steps(outside):
    grew = Unanswered(id="growing-steps", why="steps became longer, yet they level off", fits=True)
    found = msgspec.structs.replace(full_report().findings[0], predicted_step_ns=90 * MS)
    report = with_parts(
        part("host-python", "host runs Python", "host", 100 - outside),
        part("not-recorded", "longer steps of the run, not recorded", "outside", outside),
        findings=(found,), not_checked=(grew,),
    )  # fmt: skip
    said = "Undecided is growing-steps: steps became longer, yet they level off."
    assert closing_sentence(report).endswith(said) == (outside == 60)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("the result of a trial: pinchpoint try --knob omp_threads=1 -- python train.py", True),
        ("the same run while the machine has nothing else to do", False),
    ],
)
def test_beside_findings_a_cause_that_a_trial_of_a_knob_decides_is_said(record, said):
    open_ = Unanswered(id="cpu-many-threads", why="it does not show", record=record, fits=True)
    found = msgspec.structs.replace(full_report().findings[0], predicted_step_ns=90 * MS)
    report = with_parts(
        part("host-python", "host runs Python", "host", 100),
        findings=(found,),
        not_checked=(open_,),
    )
    assert (f"What would tell: {record}." in closing_sentence(report)) == said
