"""The server for one file and one page: who gets it, and when it ends."""

from pathlib import Path

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UsageError
from pinchpoint.export.handoff import VIEWER, Handoff
from serving import asked

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"
CONTENT = b"x" * 3_000_000


@pytest.fixture
def handoff():
    with Handoff(CONTENT, "a trace.json.gz", port=0) as running:
        yield running


def address(handoff):
    port, _, path = handoff.address.removeprefix("http://127.0.0.1:").partition("/")
    return int(port), "/" + path


def test_the_viewer_gets_it_once_and_that_ends_the_wait(handoff):
    answer = asked(*address(handoff), Origin=VIEWER)
    assert (answer.status, len(answer.text)) == (200, len(CONTENT))
    assert answer.headers["access-control-allow-origin"] == VIEWER
    assert handoff.wait(30)


def test_the_link_opens_the_viewer_on_the_address(handoff):
    assert handoff.link == f"https://ui.perfetto.dev/#!/?url={handoff.address}"
    assert handoff.address.endswith("/a_trace.json.gz")


def test_a_preflight_for_a_private_address_is_answered(handoff):
    answer = asked(
        *address(handoff),
        "OPTIONS",
        Origin=VIEWER,
        Access_Control_Request_Private_Network="true",
    )
    assert answer.status == 204
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert not handoff.wait(0)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "https://ui.perfetto.dev.evil.example"},
        {"Origin": "http://ui.perfetto.dev"},
        {"Origin": "null"},
        {"Origin": VIEWER, "Host": "evil.example"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_nobody_else_gets_anything(handoff, method, headers):
    answer = asked(*address(handoff), method, **headers)
    assert (answer.status, answer.text) == (403, "")
    assert "access-control-allow-origin" not in answer.headers
    assert not handoff.wait(0)


@pytest.mark.parametrize("path", ["/", "/x/a_trace.json.gz", "//", "/../etc/passwd"])
def test_there_is_one_address(handoff, path):
    assert asked(address(handoff)[0], path, Origin=VIEWER).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_other_methods_are_not_known(handoff, method):
    assert asked(*address(handoff), method, Origin=VIEWER).status == 501


def test_a_port_in_use_is_one_line(handoff):
    with pytest.raises(UsageError, match="cannot listen on port"):
        Handoff(b"", "x", port=address(handoff)[0])


@pytest.mark.browser
@pytest.mark.parametrize(
    ("origin", "read"), [(VIEWER, len(CONTENT)), ("https://evil.example", None)]
)
def test_a_browser_lets_only_the_viewer_read_it(browser, handoff, origin, read):
    fetch = "a => fetch(a).then(r => r.blob()).then(b => b.size, () => null)"
    context = browser.new_context()
    context.grant_permissions(["local-network-access"], origin=origin)  # else it asks a person
    page = context.new_page()
    page.route(f"{origin}/**", lambda route: route.fulfill(body="<p>a stand-in</p>"))
    page.goto(f"{origin}/")
    assert page.evaluate(fetch, handoff.address) == read
    context.close()


def test_the_command_prints_the_link_and_says_that_nobody_came(monkeypatch, capsys):
    monkeypatch.setattr(
        "pinchpoint.cli.sharing.open.Handoff",
        lambda content, name: Handoff(content, name, port=0),
    )
    assert main(["open", str(DEMO), "--no-browser", "--wait", "0.01", "--steps", "2-3"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
    assert out.endswith("/item_sync.json.gz\n")
    assert "showing steps 2 to 3" in err
    assert "error: nothing fetched the trace within 0.01 s" in err


@pytest.mark.parametrize(
    "words",
    [["--steps", "x"], ["--steps", "900"], ["--max-events", "0"], ["--wait", "-1"]],
)
def test_what_makes_no_sense_is_one_line(words, capsys):
    assert main(["open", str(DEMO), *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
