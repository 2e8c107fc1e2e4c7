"""How large the report of a long recording is, how long it takes to write, to load and to move in.

./run bench report_page                     made-up recordings of 1 and of 5 million events
./run bench report_page --events 2000000    another size
./run bench report_page --file TRACE        a recording of your own

Writing is the page alone, after the diagnosis, whose time stands beside it. Loading is from
navigation to a timeline that answers, the median of some loads from disk in headless Chromium, as
the page itself measures it. Moving is a pan of 90 frames over the whole recording, over a tenth and
over a thousandth of it, each at the browser's own pace, without a GPU; the 95th percentile of the
slowest pan counts. Beside it stands the CPU time of a frame in all processes of the browser, which
other work on the machine does not lengthen. Sums of searches are compared with those of the
recording. The aims: 1 million events load in at most 1.5 s, every page is smaller than 8 MB,
95 of 100 frames take at most a sixtieth of a second.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import made_up_trace
from pinchpoint.importers import load
from pinchpoint.monitor.environment.host import cpu_model
from pinchpoint.report import diagnose
from pinchpoint.report.html_page import interactive
from pinchpoint.trace import Trace

MOST_LOAD_S, MOST_LOAD_EVENTS = 1.5, 1_000_000
MOST_BYTES = 8_000_000
MOST_FRAME_S = 1 / 60 + 0.001  # the clock of the browser is that coarse
FRAMES = 90  # of one pan
SHARES = (1, 10, 1000)  # of the recording that are seen while panning: one part of so many
SEARCHED = ("aten::", "cudalaunchkernel", "kernel", "e")
PAN = """([parts, frames]) => new Promise((done) => {
  const view = pinchpointTimeline, length = view.head.ticks / parts;
  // At the whole recording nothing can move: every frame is drawn again as it is.
  view.show((view.head.ticks - length) / 2, (view.head.ticks + length) / 2);
  const taken = [];
  let last = 0;
  const frame = (now) => {
    if (last) taken.push(now - last);
    last = now;
    if (taken.length >= frames) return done(taken);
    view.from += length / 200;
    view.to += length / 200;
    view.draw();
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""
SEARCH = """(text) => {
  const view = pinchpointTimeline, hit = entriesWith(view.head, text);
  let events = 0, total = 0;
  hit.forEach((yes, entry) => {
    events += yes * view.head.events[entry];
    total += yes * view.head.total_ns[entry];
  });
  return [events, total];
}"""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Loaded:
    """Medians of some loads."""

    ready_s: float
    frame_s: float  # 95th percentile of the slowest pan
    frame_cpu_s: float  # of one frame, the mean of the slowest pan
    slices: int
    found: tuple[tuple[int, int], ...]  # events and ns of each searched text


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
        f"{'':>12}{'diagnosed':>11}{'written':>9}{'size':>10}{'loaded':>9}"
        f"{'frame':>9}{'its CPU':>9}{'slices':>11}"
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
        f"{loaded.ready_s:>7.2f} s{1e3 * loaded.frame_s:>6.1f} ms"
        f"{1e3 * loaded.frame_cpu_s:>6.1f} ms{loaded.slices:>11,}"
    )
    say(f"size {size / 1e6:.2f} MB", size <= MOST_BYTES, f"{MOST_BYTES / 1e6:.0f} MB")
    if report.source.events <= MOST_LOAD_EVENTS * 1.01:
        say(f"load {loaded.ready_s:.2f} s", loaded.ready_s <= MOST_LOAD_S, f"{MOST_LOAD_S} s")
    frame_ms = 1e3 * loaded.frame_s
    say(f"frame {frame_ms:.1f} ms", loaded.frame_s <= MOST_FRAME_S, "a sixtieth of a second")
    exact = loaded.found == tuple(counted(trace, text) for text in SEARCHED)
    print(f"{'':>12}sums of searches as counted in the recording: {'yes' if exact else 'NO'}")


def counted(trace: Trace, text: str) -> tuple[int, int]:
    """Events with a text in their name, and their time, as SQL over the three tables has them."""
    wanted = np.array([text in name.lower() for name in trace.names])
    events, total = 0, 0
    for rows in (trace.host_ops, trace.api_calls, trace.device_ops):
        if rows is not None:
            mine = wanted[rows["name"]]
            events, total = events + int(mine.sum()), total + int(rows["duration_ns"][mine].sum())
    return events, total


def load_page(path: Path, loads: int) -> Loaded:
    """Open the page some times, each in a fresh context of one browser."""
    from playwright.sync_api import sync_playwright

    ready, slowest, cpu = [], [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for load_number in range(loads):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            opened = context.new_page()
            opened.set_default_timeout(120_000)
            opened.goto(path.as_uri())
            opened.wait_for_selector("#timeline[data-ready]")
            ready.append(float(opened.get_attribute("#timeline", "data-ready") or "nan") / 1e3)
            if load_number == loads - 1:
                opened.locator("#canvas").scroll_into_view_if_needed()
                for parts in SHARES:
                    before_s = cpu_of_children_s()
                    slowest.append(percentile_95(opened.evaluate(PAN, [parts, FRAMES])) / 1e3)
                    cpu.append((cpu_of_children_s() - before_s) / FRAMES)
                slices = opened.evaluate("pinchpointTimeline.head.slices")
                found = tuple(tuple(opened.evaluate(SEARCH, text)) for text in SEARCHED)
            context.close()
        browser.close()
    return Loaded(statistics.median(ready), max(slowest), max(cpu), slices, found)


def cpu_of_children_s() -> float:
    """CPU time of all processes below this one that still run; needs /proc."""
    children: dict[int, list[tuple[int, int]]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        own = int(file.parent.name), int(fields[11]) + int(fields[12])
        children.setdefault(int(fields[1]), []).append(own)
    total, waiting = 0, [os.getpid()]
    while waiting:
        for process, ticks in children.get(waiting.pop(), ()):
            total += ticks
            waiting.append(process)
    return total / os.sysconf("SC_CLK_TCK")


def percentile_95(values: list[float]) -> float:
    """The value that 95 of 100 do not exceed."""
    return statistics.quantiles(values, n=20)[-1]


def say(what: str, kept: bool, limit: str) -> None:
    """Print whether an aim is met."""
    print(f"{'':>12}{what}, at most {limit}: {'kept' if kept else 'NOT kept'}")


if __name__ == "__main__":
    main()
