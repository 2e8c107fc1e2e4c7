"""The full page as text: inert names, no network, and everything there without scripts."""

import re

import pytest

from builders import TraceBuilder
from pinchpoint.report import diagnose
from pinchpoint.report.documents.report import StepsInfo
from pinchpoint.report.html_page import interactive
from pinchpoint.report.svg.steps import steps_svg
from pinchpoint.trace import RunFacts
from report_sample import hostile_report

EVIL = "</script><script>alert(1)</script>\x00\u202e\"'&"


def training(name="gemm"):
    builder = TraceBuilder()
    for i in range(4):
        builder.step(i, 1000 * i, 1000)
        builder.op(f"aten::{name}", 1000 * i + 10, 500)
        builder.launch(1000 * i + 20, 100, name, runs_at=1000 * i + 300, for_ns=400)
    return builder


def rendered(trace):
    return interactive.render(trace, diagnose(trace))


def test_names_stay_text():
    trace = training(EVIL).trace()
    text = interactive.render(trace, hostile_report())
    assert text.count("<script") == text.count("</script>") == 4
    assert "alert(1)</script>" not in text
    assert "\x00" not in text
    assert "\u202e" not in text


def test_only_scripts_of_the_package_may_run():
    text = rendered(training().trace())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'unsafe-inline'; script-src( 'sha256-[\w+/=]+'){3}", policy
    )
    assert not re.search(r"""\b(?:src|href)=["'](?!#)|url\(|@import|<link""", text)


def test_tables_graphs_and_a_still_timeline_need_no_script():
    text = rendered(training().trace())
    without = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert 'aria-label="How busy each lane is over the recording"' in without
    assert "Host time by stack by stack, " not in without
    assert 'aria-label="Host time by stack' in without
    assert 'aria-label="Device time by stack' in without
    assert 'id="table-kernels"' in without


def test_every_link_of_the_contents_leads_somewhere():
    text = rendered(training().trace())
    targets = re.findall(r'<a href="#([^"]+)"', text)
    assert len(targets) > 5
    assert all(f'id="{target}"' in text for target in targets)


def test_facts_of_the_run_are_shown():
    run = RunFacts(
        documents={"torch": {"version": "2.11", "unknown": None}}, command=("python", "x")
    )
    text = rendered(training().trace(run=run))
    assert '<td class="text">torch.version</td>' in text
    assert "torch.unknown" not in text


@pytest.mark.parametrize("length", [1_000_000])
def test_long_names_do_not_make_a_long_page(length):
    assert len(rendered(training("n" * length).trace())) < 200_000


@pytest.mark.parametrize("steps", [(0, 0), (0, 0, 0)])
def test_steps_that_take_no_time_have_no_strip(steps):
    assert steps_svg(StepsInfo(how="marker", duration_ns=steps)) is None
    assert steps_svg(StepsInfo(how="marker", duration_ns=(*steps, 1))) is not None
