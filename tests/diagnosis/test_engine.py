from dataclasses import fields, replace

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct

from builders import TraceBuilder
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.diagnosis.engine import Ranked, no_less_than_one, predicted
from pinchpoint.diagnosis.finding import Found, Small, at_most
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, Record
from pinchpoint.diagnosis.registry import Known, ask, page, rules
from pinchpoint.diagnosis.rule import HEADINGS, RECORDED, NotChecked, Rule
from pinchpoint.trace import Device, Trace


def rule(check, needs=()):
    return Known("example", Rule(needs=needs, record=Record("record the device")), check)


def empty():
    return TraceBuilder().trace()


def test_a_rule_that_breaks_costs_only_its_own_answer():
    def check(trace):
        raise ZeroDivisionError("oops")
        yield

    outcome = ask(rule(check), empty())
    assert outcome.answer == "crashed"
    assert outcome.why == "ZeroDivisionError: oops"


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param([Small(0.036, 0.05)], "smaller than 5 % of the step: 3.6 %", id="small"),
        pytest.param(
            [Small(0.01, 0.05), Small(0.09, 0.1, "the run")],
            "smaller than 10 % of the run: 9.0 %",
            id="the largest is said",
        ),
        pytest.param([Small(0.04999, 0.05)], "smaller than 5 % of the step: 4.9 %", id="nearly"),
        pytest.param([Small(0.0049, 0.05)], "", id="three digits do not show it"),
        pytest.param([], "", id="nothing"),
    ],
)
def test_what_a_rule_sees_and_finds_too_small_is_not_clear(seen, why):
    outcome = ask(rule(lambda trace: iter(seen)), empty())
    assert (outcome.answer, outcome.why) == ("smaller" if why else "clear", why)
    assert outcome.findings == ()


def test_what_is_found_goes_before_what_is_small_beside_it():
    found = Found(summary="It is there", evidence=())
    outcome = ask(rule(lambda trace: iter([Small(0.01, 0.05), found])), empty())
    assert (outcome.answer, outcome.why, len(outcome.findings)) == ("found", "", 1)


def test_what_one_decimal_does_not_show_is_not_said_to_be_nothing():
    assert Small(0.0002, 0.03).why == "smaller than 3 % of the step: under 0.1 %"


def test_of_several_findings_the_first_are_told_and_all_that_is_small():
    one, two = (Found(summary=name, evidence=()) for name in ("one", "two"))
    assert list(at_most(1, [None, one, Small(0.01, 0.05), two])) == [one, Small(0.01, 0.05)]


def test_missing_tables_are_not_checked_and_say_what_to_record():
    outcome = ask(rule(lambda trace: iter(()), needs=("device_ops",)), empty())
    assert outcome.answer == "not checked"
    assert outcome.why == "the recording has no device ops"
    assert outcome.record == CPU_AND_DEVICE.phrase


def test_tables_that_only_some_rules_need_are_recorded_as_the_rule_says():
    outcome = ask(rule(lambda trace: iter(()), needs=("counters",)), empty())
    assert outcome.why == "the recording has no counters"
    assert outcome.record == "record the device"


@pytest.mark.parametrize(
    ("vendor", "said"),
    [("nvidia", "no kernel counters"), (None, "no kernel counters"), ("amd", "of NVIDIA only")],
)
def test_counters_are_asked_for_where_they_can_be_read(vendor, said):
    trace = replace(empty(), devices=(Device(0, vendor=vendor),))
    outcome = ask(rule(lambda trace: iter(()), needs=("kernel_counters",)), trace)
    assert said in outcome.why


def test_a_program_without_a_device_needs_one_before_its_kernels_are_counted():
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 10)
    needs = ("kernel_counters",)
    outcome = ask(rule(lambda trace: iter(()), needs=needs), builder.trace())
    assert outcome.why == "the recording has no device ops"


def test_a_rule_may_decline_with_a_reason():
    def check(trace):
        raise NotChecked("no counters", Record("record counters"))
        yield

    outcome = ask(rule(check), empty())
    assert (outcome.answer, outcome.why, outcome.record) == (
        "not checked",
        "no counters",
        "record counters",
    )


def test_silence_is_clear():
    assert ask(rule(lambda trace: iter(())), empty()).answer == "clear"


@pytest.mark.parametrize("id_", rules())
def test_every_rule_has_its_page_and_declarations(id_):
    title, *_ = lines = page(id_).splitlines()
    assert title.endswith("."), "the page begins with one sentence"
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert headings == [*HEADINGS, RECORDED]
    assert "*not checked*" in " ".join(page(id_).split())
    rule = rules()[id_].rule
    assert set(rule.needs) <= {field.name for field in fields(Trace)}
    assert rule.parent is None or rule.parent in rules()


def test_on_a_cpu_no_gain_exceeds_what_is_there():
    """A cause that takes 2 of 10 ms: 5 that no recorded step shows cannot be won with it. What
    usually goes with a cause, 0.14 of it, can."""
    builder = TraceBuilder(devices=())
    for step in range(6):
        builder.step(step, step * 10_000_000, 10_000_000)
        builder.op("aten::mm", step * 10_000_000 + 1_000, 9_000_000)
    begin = np.arange(6) * 10_000_000 + 2_000
    gone = RemoveHostTime(begin, begin + 2_000_000, 5_000_000)
    found = Found(summary="", evidence=(), cost_ns_per_step=2_000_000, changes=(gone,))
    said = predicted(builder.trace(), "host-hotspot", found)
    assert said.saving_ns == 2_280_000
    assert said.predicted.range_ns[0] == 10_000_000 - 1.4 * 2_000_000
    saved = replace_struct(found, changes=(), saving_ns_per_step=(1_000_000, 9_000_000))
    assert predicted(builder.trace(), "host-hotspot", saved).predicted.step_ns == 7_720_000


def test_on_a_cpu_all_fixes_win_no_less_than_one():
    def ranked(step_ns, given=()):
        after = Prediction(step_ns, (step_ns, 10), 10)
        return Ranked("cpu-copies", Found(summary="", evidence=()), after, 10 - step_ns, given)

    together = Prediction(8, (7, 9), 10)
    assert no_less_than_one(together, [ranked(6), ranked(9)]).step_ns == 6
    assert no_less_than_one(together, [ranked(6, ("layout-nchw",)), ranked(9)]) == together
    assert no_less_than_one(None, [ranked(6)]) is None
