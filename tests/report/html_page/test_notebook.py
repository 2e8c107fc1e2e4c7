"""Reports and traces in a notebook: small, and safe whatever the names are."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import pinchpoint
from builders import TraceBuilder
from pinchpoint.compare.fix import fix_outcome
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.report.documents.report import Report
from pinchpoint.report.html_page.notebook import ASKED_BY_JUPYTER, draw_documents, render
from pinchpoint.trace import Source
from report_sample import MS, full_report, hostile_report

DATA = Path(__file__).parents[2] / "data"
LABELLED, RANKS = DATA / "labelled", DATA / "ranks"
EVIL = "<script>alert(1)</script>\x00\u202e\"'&" + "n" * 100_000


@pytest.fixture(autouse=True)
def _drawn_as_in_jupyter(monkeypatch):
    for document in (Report, LadderInfo, Finding):  # taken back after the test
        monkeypatch.setattr(document, ASKED_BY_JUPYTER, None, raising=False)
    draw_documents()


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def trace(name="mm", **facts):
    builder = TraceBuilder()
    builder.op(name, 0, 10)
    return builder.trace(**facts)


def test_a_report_says_what_bounds_the_step_and_what_to_change():
    text = full_report()._repr_html_()
    assert full_report().verdict in text
    assert "22.3 in the trace" in text
    assert "<h3>1 · sync-in-loop</h3>" in text
    assert len(text) < 30_000


def test_in_a_terminal_a_report_is_what_the_command_prints():
    printed = []
    full_report()._repr_pretty_(SimpleNamespace(text=printed.append), cycle=False)
    assert "1  sync-in-loop" in printed[0]
    assert "Report(schema" not in printed[0]


def test_a_trace_says_where_it_is_from_and_how_long_its_tables_are():
    text = trace()._repr_html_()
    assert "<tr><th>host_ops</th><td>1 rows</td></tr>" in text
    assert "<tr><th>devices</th><td>NVIDIA H100 80GB HBM3</td></tr>" in text


@pytest.mark.parametrize(
    "text",
    [
        render(hostile_report()),
        trace(EVIL, source=Source(EVIL, EVIL, producer=EVIL))._repr_html_(),
    ],
    ids=["report", "trace"],
)
def test_names_stay_text(text):
    tags = {tag for tag, _ in Elements(text).found}
    assert not tags & {"script", "img", "a", "link", "iframe"}
    assert not any(name.startswith("on") for _, attrs in Elements(text).found for name in attrs)
    assert "\x00" not in text
    assert "\u202e" not in text
    assert len(text) < 30_000


def test_styles_reach_nothing_but_the_answer():
    text = full_report()._repr_html_()
    rules = text.partition("<style>")[2].partition("</style>")[0].replace("\n", "")
    selectors = [rule.partition("{")[0] for rule in rules.split("}") if rule.strip()]
    parts = [part.strip() for selector in selectors for part in selector.split(",")]
    assert len(parts) > 10
    assert all(part.startswith(".pinchpoint") for part in parts)


def test_a_ladder_and_a_finding_draw_themselves():
    ladder = LadderInfo(
        base_ns=20 * MS,
        recorded_base_ns=30 * MS,
        rungs=(
            RungInfo(
                id="sync-in-loop",
                kind="finding",
                step_ns=10 * MS,
                range_ns=(8 * MS, 12 * MS),
                sure_ns=8 * MS,
                base_ns=20 * MS,
                effort="lines",
            ),
        ),
    )
    text = ladder._repr_html_()
    assert "without the profiler" in text
    assert "8.00 to 12.0" in text
    assert "<b>sync-in-loop</b>" in full_report().findings[0]._repr_html_()
    fixed = fix_outcome(("sync-in-loop",), 20 * MS, 10 * MS, (9 * MS, 11 * MS), "as recorded")
    assert "2.00 × as fast" in fixed._repr_html_()
    assert not {tag for tag, _ in Elements(text).found} & {"script", "a"}


@pytest.mark.parametrize("in_jupyter", [True, False])
def test_a_diagnosis_in_jupyter_makes_its_answers_draw_themselves(in_jupyter, monkeypatch):
    monkeypatch.setattr(Report, ASKED_BY_JUPYTER, None)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    if in_jupyter:
        monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    report = pinchpoint.diagnose(trace(), detailed=False)
    assert callable(report._repr_html_) is in_jupyter
    assert "pinchpoint" in report.findings._repr_html_()


def test_an_executed_notebook_draws_report_ladder_findings_and_comparison(tmp_path):
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    slow, fixed = (str(LABELLED / f"c16_sync_in_loop.{side}.json.gz") for side in ("slow", "fixed"))
    cells = {
        f"import pinchpoint as pp; report = pp.diagnose({slow!r}); report": "A step takes",
        "report.fix_ladder": "The step after each change",
        "report.findings": "sync-in-loop",
        "report.findings[0]": "a step after it",
        f"pp.causal({slow!r}, 'operator')": "aten::",
        f"pp.compare({slow!r}, {fixed!r})": "predicted",
        f"pp.diagnose_ranks({[str(RANKS / f'uneven.rank{n}.json.gz') for n in (0, 1)]!r})": "ranks",
    }
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": tmp_path}}
    ).execute()
    for cell, said in zip(notebook.cells, cells.values(), strict=True):
        (output,) = cell.outputs
        drawn = output["data"]["text/html"]
        assert said in drawn, cell.source
        assert drawn.count("<table") + drawn.count("<dl") > 0
        assert not {tag for tag, _ in Elements(drawn).found} & {"script", "iframe", "link"}
