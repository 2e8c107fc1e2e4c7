"""Screenshots of every kind of page, at the widths of a phone, a laptop and a large screen.

./run bench screens --output screens                    Chromium, light and dark
./run bench screens --output screens --firefox firefox  Firefox too, WebKit by its WebKitWebDriver
./run bench screens --output screens --trace FILE       a recording of your own among them
./run bench screens --output screens --only compare,ab  some of the pages

Pages are written by the commands that users call, from recordings of this repository and made-up
ones: small, demo, large (60 MB of text), memory, ranks (eight), compare, unsure (a comparison that
cannot tell), ab, cpu (a training without a device), folder and plain (run folders of a training
and of a program of plain Python, recorded now), runs (the list of ``serve``) and, where ``--only``
names it, huge (500 MB of text). Of each: the first screen, at 360 and 1366 pixels the whole page,
and the page as printed. Checked: that nothing is fetched, no script complains, nothing is wider
than the window or paper, and that Tab reaches something visible each time. In Firefox and WebKit
(``--webkit``, which needs a display; Debian's webkit2gtk-driver and ``xvfb-run``): the first
screens, and that timelines follow keys, the mouse and, in Firefox, fingers. Printed besides: which
questions the first screen answers (elements with ``data-answers``). Exit code 1 if any of it is not
so.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import make_ranks
import other_browsers
import synthetic_trace

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests/data"
# A phone, the most usual laptop, and a large screen; heights that such screens have.
SCREENS = ((360, 780), (1366, 768), (2560, 1440))
SCHEMES = ("light", "dark")
SYNTHETIC_BYTES = {"large": 60_000_000, "huge": 500_000_000}
RECORDED = {"folder": "programs/cpu/charlm.py", "plain": "programs/host/n01.py"}  # of benchmarks/
SETTLE_S = 0.3  # what flame graphs take to come alive
MOST_TABS = 40  # the rest of a page is tables and findings of the same kinds
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
A4_PX = 794  # 210 mm at 96 dots an inch
PAGE = "the file of the page"
SLOW = f"{sys.executable} -c 'print(sum(i * i for i in range(900000)))'"
QUICK = f"{sys.executable} -c 'print(sum(i * i for i in range(300000)))'"

MEASURE = """() => ({
  wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  answers: [...document.querySelectorAll("[data-answers]")]
    .filter((e) => e.getClientRects().length)
    .map((e) => [e.dataset.answers, e.getBoundingClientRect().top]),
})"""
READY = "() => !!document.querySelector('#timeline[data-ready]')"
FETCHED = "() => performance.getEntriesByType('resource').length"
FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const box = e.getBoundingClientRect();
  const shown = getComputedStyle(e.matches(".clock input") ? e.nextElementSibling : e);
  return {
    name: `${e.tagName.toLowerCase()} ${e.id} ${(e.textContent || "").trim().slice(0, 30)}`,
    seen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight,
    outlined: shown.outlineStyle !== "none",
  };
}"""


@dataclass(frozen=True)
class Shot:
    """A page on one screen: what is wrong with it, and which answers it shows."""

    name: str
    answers: tuple[str, ...]
    faults: tuple[str, ...]


def main() -> int:
    """Write the pages, take the pictures, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="a folder for pages and PNGs")
    parser.add_argument("--firefox", help="a Firefox to try too")
    parser.add_argument("--webkit", help="a WebKitWebDriver to try WebKit with")
    parser.add_argument("--trace", type=Path, action="append", default=[], help="of your own")
    parser.add_argument("--only", default="", help="names of pages, separated by commas")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    wanted = set(filter(None, options.only.split(",")))
    with tempfile.TemporaryDirectory() as scratch:
        pages = [*written(options.output, Path(scratch), wanted, options.trace)]
    shots = [*in_chromium(pages)]
    for kind, command in (("firefox", options.firefox), ("webkit", options.webkit)):
        if command is not None:
            shots += in_another(kind, command, pages)
    for shot in shots:
        said = "; ".join(shot.faults) or "nothing wrong"
        print(f"{shot.name:<24} {said}. First screen: {', '.join(shot.answers) or 'no answers'}")
    return 1 if any(shot.faults for shot in shots) else 0


def written(
    folder: Path, scratch: Path, wanted: set[str], traces: Sequence[Path]
) -> Iterator[Path]:
    """The pages, each by the command that users would call."""
    for name, arguments in commands(scratch, traces).items():
        if name not in wanted if wanted else name == "huge":
            continue
        made_up(name, scratch)
        page = folder / f"{name}.html"
        asked = [str(page) if argument is PAGE else str(argument) for argument in arguments]
        ran = subprocess.run(
            [sys.executable, "-m", "pinchpoint", *asked],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if not page.exists():
            sys.exit(f"{name}: {ran.stderr.strip()}")
        yield page
    if not wanted or "runs" in wanted:
        page = folder / "runs.html"
        page.write_text(list_of_runs(scratch), "utf-8")
        yield page


def commands(scratch: Path, traces: Sequence[Path]) -> dict[str, list[Any]]:
    """The arguments of each page; ``PAGE`` stands for its file."""
    to_page = ["--html", PAGE]
    slow = DATA / "labelled/c16_sync_in_loop.slow.json.gz"
    fixed = DATA / "labelled/c16_sync_in_loop.fixed.json.gz"
    measuring = ["--pairs", 5, "--output", scratch / "ab", "--allow-inconclusive"]
    return {
        "small": ["diagnose", DATA / "kineto/cupy_mix.json.gz", *to_page],
        "demo": ["diagnose", ROOT / "src/pinchpoint/data/item_sync.json.gz", *to_page],
        "cpu": ["diagnose", DATA / "kineto/cpu_loader_workers2.json.gz", *to_page],
        **{name: ["diagnose", scratch / f"{name}.json.gz", *to_page] for name in SYNTHETIC_BYTES},
        **{name: ["diagnose", scratch / name, *to_page] for name in RECORDED},
        "memory": ["memory", DATA / "memory/oom.pickle.gz", *to_page],
        "ranks": ["ranks", scratch / "ranks", *to_page],
        "compare": ["compare", slow, fixed, *to_page],
        "unsure": ["compare", slow, slow, *to_page],
        "ab": ["bench", "ab", *measuring, *to_page, "--", SLOW, QUICK],
        **{t.name.partition(".")[0]: ["diagnose", t, *to_page] for t in traces},
    }


def made_up(name: str, scratch: Path) -> None:
    """The recordings that no repository should hold."""
    if name in SYNTHETIC_BYTES:
        synthetic_trace.write(scratch / f"{name}.json.gz", SYNTHETIC_BYTES[name])
    if name in RECORDED:
        program = ROOT / "benchmarks" / RECORDED[name]
        command = ["run", "-o", str(scratch / name), sys.executable, str(program)]
        subprocess.run(
            [sys.executable, "-m", "pinchpoint", *command], capture_output=True, check=True
        )
    if name == "ranks":
        (scratch / "ranks").mkdir()
        make_ranks.write(scratch / "ranks", ranks=8)


def list_of_runs(scratch: Path) -> str:
    """The list that ``serve`` shows of the recordings in this repository's tests."""
    from pinchpoint.serve.index import Index
    from pinchpoint.serve.listing import recordings
    from pinchpoint.serve.pages import list_page
    from pinchpoint.serve.reader import summary_of, summary_of_job

    index = Index(scratch / "runs.sqlite")
    for recording in recordings(DATA).recordings:
        index.put(recording, summary_of(DATA, recording.name))
    jobs = Asked()
    list_page(DATA, "/", index, jobs)
    for job in jobs.unread:
        if job.one is not None:
            index.put(job.recording, summary_of_job(DATA, job.ranks, job.one))
    return list_page(DATA, "/", index, jobs)


class Asked:
    """A reader that only keeps what it was asked for."""

    unread: Sequence[Any] = ()

    def want(self, unread: Sequence[Any]) -> None:
        """What the list does not know."""
        self.unread = unread


def in_chromium(pages: Sequence[Path]) -> Iterator[Shot]:
    """Pictures of all pages on all screens, in both schemes."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, BROWSERS)), None),
            args=["--no-sandbox", "--disable-gpu"],
        )
        for page, screen, scheme in product(pages, SCREENS, SCHEMES):
            yield one(browser, page, screen, scheme)
        browser.close()


def one(browser: Any, file: Path, screen: tuple[int, int], scheme: str) -> Shot:
    """Open a page on one screen, take its pictures and look for faults."""
    width, height = screen
    faults: list[str] = []
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=width < 500
    )
    page = context.new_page()
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    page.goto(file.as_uri())
    if page.locator("#data").count():
        page.wait_for_selector("#timeline[data-ready]")
    name = f"{file.stem}-{width}-{scheme}"
    page.screenshot(path=file.with_name(f"{name}.png"))
    seen = page.evaluate(MEASURE)
    if seen["wider"] > 0:
        faults.append(f"{seen['wider']} pixels wider than the window")
    faults += [f"fetches {url}" for url in fetched[1:]]
    if scheme == "light" and width < SCREENS[-1][0]:
        page.screenshot(path=file.with_name(f"{name}-whole.png"), full_page=True)
    if scheme == "light":
        faults += unseen_focus(lambda: page.keyboard.press("Tab"), page.evaluate)
    if scheme == "light" and width == SCREENS[0][0]:
        faults += on_paper(page, file.with_name(f"{file.stem}-print.png"))
    context.close()
    return Shot(name, answers(seen, height), tuple(faults))


def on_paper(page: Any, picture: Path) -> Iterator[str]:
    """What a printer would cut off."""
    page.set_viewport_size({"width": A4_PX, "height": A4_PX * 3 // 2})
    page.emulate_media(media="print")
    page.screenshot(path=picture, full_page=True)
    if (wider := page.evaluate(MEASURE)["wider"]) > 0:
        yield f"{wider} pixels wider than paper"


def unseen_focus(press_tab: Callable[[], None], evaluate: Callable[[str], Any]) -> Iterator[str]:
    """What Tab reaches without anyone seeing where the focus is."""
    for _ in range(MOST_TABS):
        press_tab()
        focus = evaluate(FOCUSED)
        if focus is None:
            return
        if not focus["seen"]:  # scripts that wait for an idle page may have moved it meanwhile
            time.sleep(SETTLE_S)
            focus = evaluate(FOCUSED)
        if not focus["seen"] or not focus["outlined"]:
            yield f"focus cannot be seen on {focus['name']}"


def in_another(kind: str, command: str, pages: Sequence[Path]) -> Iterator[Shot]:
    """First screens of all pages, and timelines as they are used."""
    for scheme in SCHEMES:
        with other_browsers.STARTED[kind](command, scheme) as browser:
            for file, (width, height) in product(pages, SCREENS):
                browser.open(file, (width, height))
                name = f"{file.stem}-{width}-{scheme}-{kind}"
                timeline = browser.evaluate("() => !!document.querySelector('#data')")
                faults = []
                if timeline and not browser.until(READY):
                    faults.append("the timeline is never ready")
                browser.picture(file.with_name(f"{name}.png"))
                seen = browser.evaluate(MEASURE)
                if seen["wider"] > 0:
                    faults.append(f"{seen['wider']} pixels wider than the window")
                if fetched := browser.evaluate(FETCHED):
                    faults.append(f"fetches {fetched}")
                if width == SCREENS[1][0] and scheme == "light":
                    faults += unseen_focus(browser.press_tab, browser.evaluate)
                if timeline and not faults and width == SCREENS[1][0]:
                    faults += other_browsers.tried(browser)
                yield Shot(name, answers(seen, height), tuple(faults))


def answers(seen: Any, height: int) -> tuple[str, ...]:
    """The questions that a screen of this height answers."""
    found = [what for said, top in seen["answers"] if top < height for what in said.split(", ")]
    return tuple(dict.fromkeys(found))


if __name__ == "__main__":
    raise SystemExit(main())
