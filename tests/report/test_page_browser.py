"""The page in a real browser: opened from disk, zoomed, searched, and led to a finding."""

import os
import re
import shlex
from itertools import product
from pathlib import Path

import pytest

from builders import TraceBuilder
from pinchpoint.export.database import query
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.report.html_page import interactive

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report_file(tmp_path_factory):
    trace = load(DEMO)
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(interactive.render(trace, diagnose(trace)), "utf-8")
    return file


class Opened:
    def __init__(self, browser, file, **options):
        self.page = browser.new_page(**options)
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        if self.page.locator("#data").count():
            self.page.wait_for_selector("#timeline[data-ready]")

    def window(self):
        return self.page.evaluate("[pinchpointTimeline.from, pinchpointTimeline.to]")

    def length(self):
        start, end = self.window()
        return end - start


@pytest.fixture
def opened(browser, report_file):
    opened = Opened(browser, report_file)
    yield opened
    opened.page.close()
    assert opened.complaints == []
    assert opened.requests == [report_file.as_uri()]


def test_it_zooms_by_wheel_keys_and_buttons(opened):
    whole = opened.length()
    opened.page.click("#canvas", position={"x": 600, "y": 60})
    opened.page.mouse.wheel(0, -300)
    opened.page.wait_for_function(
        "n => pinchpointTimeline.to - pinchpointTimeline.from < n", arg=whole
    )
    by_wheel = opened.length()
    opened.page.keyboard.press("w")
    by_key = opened.length()
    assert by_key < by_wheel
    opened.page.keyboard.press("d")
    assert opened.length() == pytest.approx(by_key)
    opened.page.click("[data-do=in]")
    assert opened.length() < by_key
    opened.page.keyboard.press("Tab")
    opened.page.click("[data-do=whole]")
    assert opened.length() == whole


def test_it_finds_events_by_name(opened):
    opened.page.fill("#search", "cudaStreamSynchronize")
    assert "events" in opened.page.inner_text("#found")
    opened.page.press("#search", "Enter")
    assert opened.page.inner_text("#selected b") == "cudaStreamSynchronize"
    first = opened.window()
    opened.page.press("#search", "Enter")
    assert opened.window() != first


def test_a_click_on_a_finding_leads_to_where_it_happens(opened):
    opened.page.click("#finding-sync-in-loop button.at >> nth=0")
    said = opened.page.inner_text("#found")
    assert said.startswith("2 · sync-in-loop: ")
    assert " of 180," in said  # 10 reads a step, each an .item() and a copy, in 9 steps
    selected = opened.page.evaluate("pinchpointTimeline.start[pinchpointTimeline.selected]")
    start, end = opened.window()
    assert start < selected < end
    opened.page.click("text=typical step")
    begin, last = opened.window()
    assert begin <= selected < last  # the first place that is shown is in a typical step
    opened.page.go_back()
    opened.page.click("[data-do=next]")
    assert opened.page.inner_text("#found") != said
    assert opened.page.inner_text("#selected dd >> nth=-1").split()[0] in ("host_ops", "api_calls")


def test_every_place_of_a_finding_has_a_row_of_its_own(opened):
    rows = "pinchpointTimeline.findings.map(mark => [mark.key, mark.count])"
    shown = opened.page.evaluate(rows)
    assert [key for key, _ in shown[:2]] == ["finding launch-bound", "finding sync-in-loop"]
    assert shown[1][1] == 180
    opened.page.click("#canvas", position={"x": 700, "y": 45})  # the second row
    assert opened.page.inner_text("#found").startswith("2 · sync-in-loop: ")
    opened.page.press("#canvas", "Escape")
    assert opened.page.inner_text("#found") == ""


@pytest.mark.parametrize("table", ["kernels", "operators", "idle", "steps", "transfers", "waits"])
def test_rows_lead_to_their_events(opened, table):
    opened.page.click(f"#table-{table} button.at >> nth=0")
    assert " of " in opened.page.inner_text("#found")
    start, end = opened.window()
    place = "pinchpointTimeline.mark.places.starts[pinchpointTimeline.place]"
    assert start <= opened.page.evaluate(place) <= end


def test_parts_of_the_step_lead_to_their_time(opened):
    opened.page.click("#breakdown button.at >> nth=0")
    assert opened.page.inner_text("#found").startswith("idle: host dispatches operators")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_the_first_screen_says_what_bounds_the_step_and_what_to_change(
    browser, report_file, width, height
):
    opened = Opened(browser, report_file, viewport={"width": width, "height": height})
    said = opened.page.inner_text("#overview")
    assert "The host bounds this step" in said
    assert "Change this first" in said
    assert "torch.compile(model" in said  # the fix, as code
    assert "0.59 to 1.88" in said  # how sure
    assert "did it work?" in said
    for part in (".first", ".ladder >> nth=0")[: 1 if width < 800 else 2]:
        box = opened.page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= height
    opened.page.close()


def test_one_switch_puts_the_whole_page_on_another_clock(opened):
    shown = "[...document.querySelectorAll('.on-recorded')].filter(e => e.offsetParent).length"
    assert opened.page.evaluate(shown) == 0
    opened.page.click("label[for=clock-recorded]")
    assert opened.page.evaluate(shown) > 4
    said = opened.page.inner_text("main")
    assert "The step after each change, as recorded" in said
    assert "Where a step goes, as recorded" in said
    assert "What each piece is worth, as recorded" in said
    assert "Pieces of a step, as recorded" in said
    assert ", without the profiler\n" not in said
    assert "6.97 → 2.35 ms a step" in said
    assert "3.76 → 1.16 ms a step" not in said
    opened.page.focus("#clock-recorded")
    opened.page.keyboard.press("ArrowLeft")  # without a mouse
    assert opened.page.evaluate(shown) == 0


def test_arrows_are_followed_both_ways_and_everything_recorded_is_said(opened):
    opened.page.fill("#search", "launch_clamp_scalar")
    opened.page.press("#search", "Enter")
    said = opened.page.inner_text("#selected")
    assert opened.page.inner_text("#selected b") == "elementwise: launch_clamp_scalar"
    for fact in ("grid", "[16,1,1]", "registers a thread", "record_gpu.py:65 in forward"):
        assert fact in said
    opened.page.click("#selected summary")
    assert "at::native::vectorized_elementwise_kernel<4" in opened.page.inner_text("#selected code")
    kernel = opened.page.evaluate("pinchpointTimeline.selected")
    opened.page.focus("#canvas")
    opened.page.keyboard.press("[")
    assert opened.page.inner_text("#selected b") == "cudaLaunchKernel"
    assert "starts" in opened.page.locator("#selected dt").all_inner_texts()
    opened.page.keyboard.press("]")
    assert opened.page.evaluate("pinchpointTimeline.selected") == kernel
    opened.page.fill("#search", "AddmmBackward0")
    opened.page.press("#search", "Enter")
    assert "differentiates" in opened.page.locator("#selected dt").all_inner_texts()
    opened.page.focus("#canvas")
    opened.page.keyboard.press("c")
    assert opened.page.get_attribute("[data-do=path]", "aria-pressed") == "true"
    assert opened.page.evaluate("otherEdges(pinchpointTimeline).path.length") > 10


def counted(trace, text):
    """Events with a text in their name and their time, over the three tables of events."""
    rows = [
        (int(took), trace.names[name])
        for table in (trace.host_ops, trace.api_calls, trace.device_ops)
        for name, took in zip(table["name"].tolist(), table["duration_ns"].tolist(), strict=True)
    ]
    mine = [took for took, name in rows if text.lower() in name.lower()]
    return len(mine), sum(mine)


def test_sums_are_those_of_the_recording_when_few_events_are_drawn(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(interactive, "MOST_SLICES", 3000)
    trace, file = load(DEMO), tmp_path / "report.html"
    file.write_text(interactive.render(trace, diagnose(trace)), "utf-8")
    opened = Opened(browser, file)
    opened.page.fill("#search", "aten::")
    events, took_ns = counted(trace, "aten::")
    said = opened.page.inner_text("#found")
    assert said.startswith(f"{events:,} events, {took_ns / 1e6:.3g} ms together; ")
    drawn = opened.page.evaluate("pinchpointTimeline.matches.length")
    assert said.endswith(f"; {drawn:,} of them are drawn one by one")
    assert 0 < drawn < events
    opened.page.press("#search", "Escape")
    opened.page.keyboard.press("Home")
    opened.page.keyboard.press("m")  # everything that is seen: the whole recording
    row = opened.page.locator("#area tr", has=opened.page.locator("button[title='aten::linear']"))
    events, took_ns = counted(trace, "aten::linear")
    assert row.locator("td").nth(1).inner_text() == f"{events:,}"
    as_sql = opened.page.locator("#area details code").text_content()
    *command, statement = shlex.split(as_sql)
    assert command == ["pinchpoint", "sql", DEMO.name]
    assert ("aten::linear", events, took_ns) in query(trace, statement)[1]
    opened.page.click("text=typical step")
    start, end = opened.window()
    folded = """([from, to]) => {
      const { count, start } = pinchpointTimeline;
      return count.filter((events, i) => events && start[i] >= from && start[i] < to).length;
    }"""
    assert opened.page.evaluate(folded, [start, end]) == 0  # every event that begins in the step
    assert opened.complaints == []
    opened.page.close()


def test_a_view_is_an_address_to_share_and_back_returns(opened, browser, report_file):
    whole = opened.window()
    opened.page.click("#finding-sync-in-loop button.at >> nth=0")
    at_finding = opened.window()
    opened.page.locator("#heads .name").nth(0).click()
    opened.page.locator("#heads .pin").nth(1).click()
    opened.page.press("#canvas", "m")
    opened.page.click("label[for=clock-recorded]")
    opened.page.wait_for_url(re.compile("clock=recorded"))
    address, seen = opened.page.evaluate("[location.hash, pinchpointTimeline.area]")
    other = browser.new_page()
    other.goto(report_file.as_uri() + address)
    other.wait_for_selector("#timeline[data-ready]")
    state = """() => { const v = pinchpointTimeline;
      return [v.selected, v.mark.key, v.place, v.lanes.map(l => [l.folded, l.pinned]), v.area,
        Math.round(v.from), Math.round(v.to)]; }"""
    assert other.evaluate(state) == opened.page.evaluate(state)
    assert other.evaluate("pinchpointTimeline.area") == seen
    assert other.is_checked("#clock-recorded")
    other.close()
    window = """([from, to]) => Math.abs(pinchpointTimeline.from - from) < 9
      && Math.abs(pinchpointTimeline.to - to) < 9"""
    opened.page.go_back()
    opened.page.wait_for_function("pinchpointTimeline.area === null")
    opened.page.wait_for_function(window, arg=at_finding)
    opened.page.go_back()
    opened.page.wait_for_function(window, arg=whole)


@pytest.mark.parametrize(("height", "shown"), [(600, False), (1500, True)])
def test_counters_leave_room_to_the_lanes_and_open_together(browser, tmp_path, height, shown):
    builder = TraceBuilder()
    builder.op("step", 0, 1000)
    for name, at in product("abcdef", (0, 500, 999)):
        builder.add("counters", name=name, time_ns=at, value=float(at), device=None)
    trace, file = builder.trace(), tmp_path / "report.html"
    file.write_text(interactive.render(trace, diagnose(trace)), "utf-8")
    opened = Opened(browser, file, viewport={"width": 360, "height": height})
    opened.page.click("[data-do=large]")
    opened.page.click(f"text={'▾' if shown else '▸'} 6 counters")
    opened.page.wait_for_url(re.compile(f"counters={int(not shown)}"))
    other = Opened(browser, Path(file), viewport={"width": 360, "height": height})
    other.page.goto(opened.page.url)
    other.page.reload()
    other.page.wait_for_selector("#timeline[data-ready]")
    assert other.page.evaluate("pinchpointTimeline.countersShown") is not shown
    assert opened.complaints == other.complaints == []
    opened.page.close()
    other.page.close()


def test_lanes_collapse_and_stay_at_the_top_and_the_window_is_filled(opened):
    lane = "pinchpointTimeline.lanes[1]"
    opened.page.click("[data-do=large]")
    box = opened.page.locator("#timeline").bounding_box()
    assert (box["x"], box["y"]) == (0, 0)
    assert (box["width"], box["height"]) == (1280, 720)
    height = opened.page.evaluate(f"{lane}.height")
    opened.page.locator("#heads .name").nth(1).click()
    assert opened.page.evaluate(f"{lane}.height") < height
    opened.page.locator("#heads .pin").nth(2).click()
    assert opened.page.evaluate(
        "pinchpointTimeline.laneTop(pinchpointTimeline.lanes[2]) < pinchpointTimeline.top"
    )
    opened.page.keyboard.press("?")
    assert opened.page.locator("#timeline-help").is_visible()
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("g")
    assert opened.page.locator("#timeline").bounding_box()["width"] < 1280


def test_fingers_move_zoom_and_select(browser, report_file):
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(report_file.as_uri())
    page.wait_for_selector("#timeline[data-ready]")
    page.click("[data-do=large]")
    box = page.locator("#canvas").bounding_box()
    touch = context.new_cdp_session(page)

    def fingers(kind, *places):
        points = [
            {"x": box["x"] + x, "y": box["y"] + y, "id": i} for i, (x, y) in enumerate(places)
        ]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    window = "[pinchpointTimeline.from, pinchpointTimeline.to]"
    start, end = page.evaluate(window)
    fingers("touchStart", (200, 200), (260, 200))
    fingers("touchMove", (140, 200), (320, 200))
    fingers("touchEnd")
    closer = page.evaluate(window)
    assert closer[1] - closer[0] == pytest.approx((end - start) / 3, rel=0.01)
    fingers("touchStart", (200, 200))
    fingers("touchMove", (260, 200))
    fingers("touchEnd")
    moved = page.evaluate(window)
    assert moved[0] < closer[0]
    assert moved[1] - moved[0] == pytest.approx(closer[1] - closer[0])
    top = page.evaluate("pinchpointTimeline.rowOf(pinchpointTimeline.lanes[2].tracks[0].first)")
    fingers("touchStart", (250, top))
    fingers("touchEnd")
    assert page.evaluate("pinchpointTimeline.selected") >= 0
    context.close()


def test_flame_graphs_are_searched_turned_and_without_libraries(opened):
    graph = opened.page.locator("#flame-host .flames")
    said = graph.locator(".flamesaid")
    graph.locator("input").fill("aten::linear")
    assert "% in frames that match" in said.inner_text()
    names = graph.locator(".frame").all_inner_texts()
    assert any(name.startswith("torch/nn/") for name in names)
    graph.get_by_text("hide library frames").click()
    shorter = graph.locator(".frame").all_inner_texts()
    assert not any(name.startswith(("torch/", "<built-in")) for name in shorter)
    graph.locator("input").fill("")
    whole = said.inner_text()
    graph.get_by_text("invert").click()
    graph.locator(".flamebox").focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("Enter")
    widths = graph.locator(".frame").evaluate_all("all => all.map(one => one.style.width)")
    assert widths[:2] == ["100%", "100%"]  # what was zoomed to, and what holds it
    opened.page.keyboard.press("Escape")
    assert said.inner_text().split(",")[0] == whole.split(",")[0]


def test_tables_are_sorted_by_their_values_and_filtered(opened):
    column = opened.page.locator("#table-kernels th").nth(1)
    column.locator("button").click()
    column.locator("button").click()
    cells = opened.page.locator("#table-kernels tr td:nth-child(2)")
    values = cells.evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    assert values == sorted(values)
    opened.page.fill("#table-kernels input", "no such kernel")
    assert opened.page.locator("#table-kernels tr:visible").count() == 1


def test_a_table_is_copied_as_csv_as_it_is_filtered(opened):
    opened.page.fill("#table-kernels input", "gemm")
    opened.page.evaluate(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    )
    opened.page.click("#table-kernels .tabletools button")
    opened.page.wait_for_function("window.copied !== undefined")
    head, *rows = opened.page.evaluate("window.copied").splitlines()
    assert head.startswith("kernel,total (ns),share (ratio),calls (count),")
    assert len(rows) == opened.page.locator("#table-kernels tbody tr:visible").count() > 0
    assert all("gemm" in row for row in rows)
    assert int(rows[0].split(",")[1]) > 1000  # nanoseconds, not what is shown of them


def test_long_tables_begin_short_and_are_whole_on_paper(opened):
    rows = opened.page.locator("#table-operators tbody tr")
    assert rows.count() > 20
    visible = opened.page.locator("#table-operators tbody tr:visible")
    assert visible.count() == 12
    opened.page.emulate_media(media="print")
    assert visible.count() == rows.count()
    opened.page.emulate_media(media="screen")
    opened.page.click("#table-operators .scroll + button")
    assert visible.count() == rows.count()


def test_it_is_used_with_the_keyboard_alone(opened):
    press = opened.page.keyboard.press
    opened.page.focus("nav a >> nth=0")
    order = []
    for _ in range(60):
        order.append(opened.page.evaluate("document.activeElement.closest('nav, [id]')?.id"))
        press("Tab")
        if opened.page.evaluate("document.activeElement.id") == "canvas":
            break
    assert order.index("finding-sync-in-loop") < order.index("search")  # as on the page
    press("/")
    assert opened.page.evaluate("document.activeElement.id") == "search"
    opened.page.keyboard.type("aten::mm")
    press("Enter")
    assert opened.page.inner_text("#selected b") == "aten::mm"
    press("Escape")
    assert opened.page.evaluate("document.activeElement.id") == "canvas"
    press("ArrowUp")
    assert opened.page.inner_text("#selected b") != "aten::mm"


def test_printed_it_is_what_it_is_without_scripts(opened):
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#still").is_visible()
    assert not opened.page.locator("#live").is_visible()
    assert not opened.page.locator("nav").is_visible()
    assert opened.page.locator(".tabletools:visible, button.at:visible").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out_of_the_window(browser, report_file, width, scheme):
    opened = Opened(
        browser, report_file, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.complaints == []
    opened.page.close()


def test_without_scripts_it_is_still_a_report(browser, report_file):
    context = browser.new_context(java_script_enabled=False)
    still = context.new_page()
    still.goto(report_file.as_uri())
    assert still.locator("#still svg path").count() > 1
    assert still.locator("#table-kernels tr").count() > 5
    assert not still.locator("#live").is_visible()
    context.close()


def corpus():
    """Some of each kind; their kinds differ more than they do."""
    folder = os.environ.get("PINCHPOINT_CORPUS")
    if not folder:
        return []
    kinds = [sorted(Path(folder).glob(pattern)) for pattern in KINDS]
    return [
        path for kind, every in zip(kinds, KINDS.values(), strict=True) for path in kind[::every]
    ]


KINDS = {  # of recordings, and how many of them are enough: one in this many
    "own/traces/*.gz": 3, "own/jax/*.gz": 2, "own/memory/*.gz": 8, "own/ncu/*.gz": 4,
    "own/*/*.log": 1, "labelled/traces/*.json.gz": 58, "public/traces/*.json*": 12,
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.skipif(not corpus(), reason="PINCHPOINT_CORPUS is not set")
@pytest.mark.parametrize("recording", corpus(), ids=lambda path: path.name)
def test_reports_of_the_corpus_open(browser, tmp_path, recording):
    trace = load(recording)
    file = tmp_path / "report.html"
    file.write_text(interactive.render(trace, diagnose(trace)), "utf-8")
    opened = Opened(browser, file, viewport={"width": 390, "height": 800})
    assert (opened.complaints, opened.requests) == ([], [file.as_uri()])
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.page.locator("#overview").inner_text().strip()
    for button in opened.page.locator("article button.at").all():
        button.click()
        assert " of " in opened.page.inner_text("#found")
    assert opened.complaints == []
    opened.page.close()
