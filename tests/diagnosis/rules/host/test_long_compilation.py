from dataclasses import replace

import pytest

from pinchpoint.diagnosis.verdict import verdict
from pinchpoint.trace import RunCourse, RunFacts, RunSamples
from program import Program

S = 1_000_000_000
COMPILING = (
    "torch/_inductor/codegen/triton.py(2100): codegen_node",
    "torch/_dynamo/convert_frame.py(700): _compile",
    "embed.py(58): main",
)
LOADING = ("safetensors/torch.py(300): load_file", "embed.py(50): main")
IMPORTED = (
    "torch/_inductor/config.py(1): <module>",
    "<frozen importlib._bootstrap>(1165): _find_and_load",
    "embed.py(3): <module>",
)
RECORDED = (*COMPILING[:2], "pinchpoint/capture/process/session.py(300): _begin", COMPILING[2])
READING = ("corpus.py(8): read", "embed.py(44): main")


def short_run(*, before_s=24, total_s=28, start=((COMPILING, 60), (READING, 15))):
    """Six quick steps of a run, most of which passed before them."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 5_000)
        p.sync()
    frames = tuple(dict.fromkeys(name for stack, _ in start for name in stack))
    looked = RunSamples(
        every_s=0.3,
        seconds=1.0,
        looks=4,
        late_median_ns=0,
        cost_ns=0,
        frames=frames,
        stacks=tuple(tuple(map(frames.index, stack)) for stack, _ in start),
        threads=(),
        start=tuple((row, looks) for row, (_, looks) in enumerate(start)),
    )
    course = RunCourse(total_ns=total_s * S, before_ns=before_s * S)
    return replace(p.trace(), run=RunFacts(samples=looked, course=course))


def test_says_how_much_of_the_run_and_where(outcome):
    (finding,) = outcome("long-compilation", short_run()).findings
    assert "24.0 s of the 28.0 s of the run passed before its third step" in finding.summary
    assert "80 % of that in compilation" in finding.summary
    assert (finding.location.file, finding.location.line) == ("embed.py", 58)


def test_is_told_first(ranked):
    assert ranked(short_run())[0] == "long-compilation"


def test_the_verdict_says_that_the_steps_are_not_the_run_in_one_unit():
    run = short_run(before_s=9, total_s=17)
    assert " 9.00 s of the 17.0 s of the run passed before its third step." in verdict(run)


@pytest.mark.parametrize(
    "trace",
    [
        short_run(start=((LOADING, 60), (COMPILING, 15))),
        short_run(start=((IMPORTED, 60), (READING, 15))),
        short_run(start=((RECORDED, 60), (READING, 15))),
        short_run(start=((COMPILING, 5),)),
    ],
    ids=["a model is loaded", "imports", "recording itself", "few looks"],
)
def test_other_runs_are_clear(outcome, trace):
    assert outcome("long-compilation", trace).answer == "clear"


def test_of_a_long_run_it_is_a_small_part(outcome):
    said = outcome("long-compilation", short_run(total_s=600))
    assert (said.answer, said.why) == ("smaller", "smaller than 50 % of the run: 4.0 %")


def test_a_long_run_has_no_word_about_its_beginning():
    assert "third step" not in verdict(short_run(total_s=600))


def test_a_trace_alone_does_not_show_it(outcome):
    trace = replace(short_run(), run=None)
    assert outcome("long-compilation", trace).answer == "not checked"
