"""Memory as a view of the big report: of a snapshot alone, beside a trace, and of memory events."""

from analysis.memory import recordings
from analysis.memory.programs import MIB, Program
from builders import TraceBuilder
from pinchpoint.report import diagnose
from pinchpoint.report.html_page import interactive


def trained():
    builder = TraceBuilder()
    for i in range(3):
        builder.step(i, 1000 * i, 1000)
        builder.launch(1000 * i + 20, 100, "gemm", runs_at=1000 * i + 300, for_ns=400)
    return builder.trace()


def test_a_snapshot_alone_is_a_report_about_memory():
    trace = recordings.recording("leak_graph")
    text = interactive.render(trace, diagnose(trace))
    assert '<a href="#memory">Memory</a>' in text
    assert "The heap at the peak" in text
    assert "Over time, by category" in text
    assert "CPU only" not in text
    assert text.count("graph-retained</h3>") == 1  # not once more in the view of memory
    assert "Each step leaves 114 MiB behind" in text


def test_a_snapshot_of_the_run_stands_beside_its_trace():
    trace = trained()
    text = interactive.render(trace, diagnose(trace), recordings.recording("oom"))
    assert "The request that failed" in text
    assert "of the run.</p>" in text
    assert 'id="table-kernels"' in text


def test_a_trace_without_memory_has_no_such_view():
    trace = trained()
    assert 'id="memory"' not in interactive.render(trace, diagnose(trace))


def test_names_in_a_snapshot_stay_text():
    p = Program()
    nasty = "</script><script>alert(1)</script>\u202e\x00<b>"
    p.alloc(3 * MIB, [(f"/tmp/{nasty}.py", 7, nasty), ("/tmp/a.py", 1, "<module>")])
    trace = p.trace()
    text = interactive.render(trace, diagnose(trace))
    assert "alert(1)</script>" not in text
    assert "\u202e" not in text
