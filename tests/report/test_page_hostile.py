"""Names of a recording that would like to be more than text, in every view, in a real browser."""

import pytest

from analysis.memory.programs import MIB, Program
from builders import TraceBuilder
from pinchpoint.report import diagnose
from pinchpoint.report.html_page import interactive
from pinchpoint.trace import HostKind, MemoryKind, RunFacts, Source, Thread

pytestmark = pytest.mark.browser

NAMES = {
    "script": "<script>window.ran = 1</script>",
    "end": "</script><script>window.ran = 1</script>",
    "attribute": "\" onmouseover=window.ran=1 autofocus onfocus=window.ran=1 x='",
    "image": "<img src=http://example.invalid/x onerror=window.ran=1>",
    "svg": "]]></title></svg><svg onload=window.ran=1>",
    "template": "{{ 7 * 7 }}${window.ran=1}",
    "nul": "a\x00b\x1b[31m\r\n\x7f",
    "direction": "\u202eevil\u2066\u200f",
    "surrogate": "half \ud800 of one \udfff",
    "long": "n" * 200_000,  # whole in a few of its places it would be more than the page may be
    "keys": "__proto__",
}


def hostile():
    """A recording with the names in every place that is shown."""
    builder = TraceBuilder(threads=[Thread(name, name, name) for name in NAMES.values()])
    for i, name in enumerate(NAMES.values()):
        at = 10_000 * i
        builder.step(i, at, 10_000)
        builder.op(f"nn.Module: {name}", at + 5, 9_000, kind=HostKind.MODULE)
        builder.python(f"{name}(12): {name}", at + 6, 8_900)
        builder.op(name, at + 10, 5_000)
        builder.launch(at + 20, 100, name, runs_at=at + 300, for_ns=4_000)
        builder.op(name, at, 1_000, thread=i)
        builder.copy(
            at + 6_000, 3_000, name, runs_at=at + 6_500, for_ns=1_000,
            size=64, source=MemoryKind.PAGEABLE, target=MemoryKind.DEVICE,
        )  # fmt: skip
        builder.add("counters", time_ns=at, name=name, value=float(i), device=0)
    facts = {f"key {name[:50]}": {name[:50]: [name]} for name in NAMES.values()}
    every = " ".join(NAMES.values())
    return builder.trace(
        source=Source(f"/tmp/{every}", every, producer=every),
        run=RunFacts(documents=facts, command=("python", *NAMES.values())),
    )


def memory():
    program = Program()
    for name in NAMES.values():
        program.alloc(3 * MIB, [(f"/tmp/{name}.py", 7, name), ("/tmp/a.py", 1, "<module>")])
    return program.trace()


def test_names_stay_text_in_every_view(browser, tmp_path):
    trace = hostile()
    text = interactive.render(trace, diagnose(trace), memory())
    assert len(text) < 1_500_000
    file = tmp_path / "report.html"
    file.write_text(text, "utf-8")
    opened, complaints, requests = browser.new_page(), [], []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(file.as_uri())
    opened.wait_for_selector("#timeline[data-ready]")
    for table in ("kernels", "operators", "source", "modules", "transfers"):
        for button in opened.locator(f"#table-{table} button.at").all():
            button.evaluate("button => button.click()")
    opened.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    for name in NAMES.values():
        opened.fill("#search", name[:60])
        opened.press("#search", "Enter")
    opened.hover("#selected")
    assert opened.evaluate("typeof window.ran") == "undefined"
    assert opened.evaluate("document.scripts.length") == 4
    assert opened.locator("img, iframe, object, link").count() == 0
    assert opened.evaluate("document.documentElement.scrollWidth") <= 1280
    assert (complaints, requests) == ([], [file.as_uri()])
    opened.close()
