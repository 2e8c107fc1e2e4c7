"""How large the report of a long recording is, how long it takes to write, and to load in Chromium.

./run bench report_page                     made-up recordings of 1 and of 5 million events
./run bench report_page --events 2000000    another size
./run bench report_page --file TRACE        a recording of your own

Writing is the page alone, after the diagnosis, whose time stands beside it. Loading is from
navigation to a timeline that answers, the median of some loads from disk in headless Chromium, as
the page itself measures it. The aims: 1 million events load in at most 1.5 s, and every page is
smaller than 15 MB.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import made_up_trace
from pinchpoint.importers import load
from pinchpoint.monitor.environment.host import cpu_model
from pinchpoint.report import diagnose
from pinchpoint.report.html_page import interactive
from pinchpoint.trace import Trace

MOST_LOAD_S, MOST_LOAD_EVENTS = 1.5, 1_000_000
MOST_BYTES = 15_000_000
DRAW = """() => {
  const begin = performance.now();
  pinchpointTimeline.draw();
  return performance.now() - begin;
}"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Loaded:
    """Medians of some loads."""

    ready_s: float
    draw_s: float
    slices: int


def main() -> None:
    """Write and load the page of each recording; print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, action="append", help="of a made-up recording")
    parser.add_argument("--file", type=Path, action="append", help="a recording of your own")
    parser.add_argument("--loads", type=int, default=5)
    options = parser.parse_args()
    sizes = options.events or ([] if options.file else [1_000_000, 5_000_000])
    print(f"{cpu_model()}, load {os.getloadavg()[0]:.1f}")
    print(
        f"{'':>12}{'diagnosed':>11}{'written':>9}{'size':>10}{'loaded':>9}{'drawn':>9}{'slices':>11}"
    )
    for size in sizes:
        measure(f"{size / 1e6:g} M events", made_up_trace.made_up(size), options.loads)
    for file in options.file or ():
        measure(file.name[:11], load(file), options.loads)


def measure(name: str, trace: Trace, loads: int) -> None:
    """One recording, one line, and how it stands to the aims."""
    begin = time.perf_counter()
    report = diagnose(trace)
    diagnosed = time.perf_counter()
    text = interactive.render(trace, report)
    written = time.perf_counter()
    size = len(text.encode())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(text, "utf-8")
        loaded = load_page(path, loads)
    print(
        f"{name:>12}{diagnosed - begin:>9.2f} s{written - diagnosed:>7.2f} s{size / 1e6:>7.2f} MB"
        f"{loaded.ready_s:>7.2f} s{1e3 * loaded.draw_s:>6.0f} ms{loaded.slices:>11,}"
    )
    say(f"size {size / 1e6:.2f} MB", size <= MOST_BYTES, f"{MOST_BYTES / 1e6:.0f} MB")
    if report.source.events <= MOST_LOAD_EVENTS * 1.01:
        say(f"load {loaded.ready_s:.2f} s", loaded.ready_s <= MOST_LOAD_S, f"{MOST_LOAD_S} s")


def load_page(path: Path, loads: int) -> Loaded:
    """Open the page some times, each in a fresh context of one browser."""
    from playwright.sync_api import sync_playwright

    ready, drawn, slices = [], [], 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for _ in range(loads):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            opened = context.new_page()
            opened.goto(path.as_uri())
            opened.wait_for_selector("#timeline[data-ready]")
            ready.append(float(opened.get_attribute("#timeline", "data-ready") or "nan") / 1e3)
            drawn.append(opened.evaluate(DRAW) / 1e3)
            slices = opened.evaluate("pinchpointTimeline.head.slices")
            context.close()
        browser.close()
    return Loaded(statistics.median(ready), statistics.median(drawn), slices)


def say(what: str, kept: bool, limit: str) -> None:
    """Print whether an aim is met."""
    print(f"{'':>12}{what}, at most {limit}: {'kept' if kept else 'NOT kept'}")


if __name__ == "__main__":
    main()
