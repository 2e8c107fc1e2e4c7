"""What a person reads once a recorded program has ended."""

import pytest

from pinchpoint.cli.programs._ended import say
from pinchpoint.run_folder.documents import MemoryPeaks, ThreadedNote, write
from pinchpoint.run_folder.layout import METRICS_FILE
from pinchpoint.run_folder.metrics import (
    LaunchMicroseconds,
    MetricsDocument,
    StepMetrics,
    UnprofiledSteps,
)

LOADED = "; not in that: CUPTI stays loaded"
UNLOADS = "(TEARDOWN_CUPTI=1 unloads it)"


@pytest.mark.parametrize(
    ("launch", "step", "cost"),
    [
        pytest.param(
            LaunchMicroseconds(before=8.3, after=14.7),
            "(median of 25; each launch in it costs 6.4 µs more than before the recording)",
            f"{LOADED}, and a launch costs 6.4 µs more than the 8.3 before {UNLOADS}",
            id="measured",
        ),
        pytest.param(
            LaunchMicroseconds(before=8.3, after=8.2), "(median of 25)", "(10.0 %)", id="no more"
        ),
        pytest.param(
            LaunchMicroseconds(why="a CUDA graph was being captured"),
            "(median of 25)",
            f"{LOADED}, and may slow launches {UNLOADS}",
            id="not known",
        ),
    ],
)
def test_what_launches_cost_more_is_said_with_its_figure(
    tmp_path, capsys, monkeypatch, launch, step, cost
):
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    write(
        tmp_path / METRICS_FILE,
        MetricsDocument(
            duration_s=700.0,
            steps=StepMetrics(
                count=507,
                unprofiled_ms=UnprofiledSteps(count=25, median=16.01),
                recording_cost_ms=70_000.0,
                launch_us=launch,
            ),
            memory=MemoryPeaks(torch_peak_allocated_bytes=1),
            profiled=True,
        ),
    )
    say(tmp_path, [])
    steps, recording, _ = capsys.readouterr().err.splitlines()
    assert steps.endswith(f"a step without the profiler {step}")
    assert recording.endswith(cost)


def test_what_the_steps_are_is_said_where_nothing_marks_them(tmp_path, capsys):
    timed = UnprofiledSteps(count=25, median=16.0)
    steps = StepMetrics(count=507, place=("gp.py", 46, "run_loop"), unprofiled_ms=timed)
    write(tmp_path / METRICS_FILE, MetricsDocument(steps=steps))
    say(tmp_path, [])
    said = "507 steps (rounds at gp.py:46 in run_loop, since nothing marks steps); 16 ms a step"
    assert said in capsys.readouterr().err


def test_requests_that_overlap_are_said_with_their_rate(tmp_path, capsys):
    calls = ThreadedNote(
        place=("serve.py", 7, "Handler.do_POST"),
        calls=899,
        threads=899,
        per_s=52.8,
        at_once=2.37,
        median_ns=29_700_000,
        p95_ns=106_000_000,
    )
    write(tmp_path / METRICS_FILE, MetricsDocument(threaded=calls))
    say(tmp_path, [])
    assert (
        "899 calls of Handler.do_POST (serve.py:7) in 899 threads: 52.8 a second, 2.4 at once on "
        "average, 29.7 ms each (95 % within 106)"
    ) in capsys.readouterr().err
