"""Firefox and WebKit, driven by the commands of the W3C's WebDriver that both of them know.

Firefox is spoken to by its own protocol, Marionette (a line of JSON behind its length); WebKit by
``WebKitWebDriver``, which starts the small browser that comes with it. Neither needs a package.
WebKit's driver makes a mouse of a finger, so touch is tried in Firefox (and in Chromium, by tests).
"""

import base64
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

START_S = 30.0  # the longest that a browser may take to start on a busy machine
LOADED_S = 60.0  # and a page of 8 MB to be ready
# The command of WebDriver that Marionette names so, as method and path.
PATHS = {
    "NewSession": ("POST", ""),
    "DeleteSession": ("DELETE", ""),
    "Navigate": ("POST", "/url"),
    "ExecuteScript": ("POST", "/execute/sync"),
    "TakeScreenshot": ("GET", "/screenshot"),
    "SetWindowRect": ("POST", "/window/rect"),
    "SwitchToFrame": ("POST", "/frame"),
    "PerformActions": ("POST", "/actions"),
    "ReleaseActions": ("DELETE", "/actions"),
}
NARROWEST = 500  # pixels that windows of both may have; what is narrower is shown in a frame
MINI_BROWSERS = ("/usr/lib/*/webkit2gtk-4*/MiniBrowser", "/usr/lib*/webkit2gtk-4*/MiniBrowser")
# 0 is dark and 1 is light; touch events as on a phone; nothing asked of the network.
FRAME = (
    '<!doctype html><body style="margin:0"><iframe width={} height={} src="{}" style="border:0">'
)
PREFERENCES = {
    "layout.css.prefers-color-scheme.content-override": 1,
    "dom.w3c_touch_events.enabled": 1,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.enabled": False,
    "app.normandy.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
}


class Asked(Protocol):
    """How a command reaches a browser; raises OSError where the browser refuses."""

    def __call__(self, name: str, **parameters: Any) -> Any:
        """The command of WebDriver with that name, and what it answers."""
        ...


@dataclass(frozen=True)
class Browser:
    """An open window."""

    name: str
    ask: Asked

    def evaluate(self, script: str, *arguments: Any) -> Any:
        """What a function in JavaScript returns."""
        called = f"return ({script}).apply(null, arguments)"
        return self.ask("ExecuteScript", script=called, args=list(arguments))

    def open(self, file: Path, size: tuple[int, int]) -> tuple[int, int]:
        """Load a page; returns how wide and high it then is seen."""
        wanted = [max(side, NARROWEST) for side in size]
        frame = [0, 0]
        for _ in range(2):  # the browser's own bars are known after the first time
            width, height = (a + b for a, b in zip(wanted, frame, strict=True))
            self.ask("SetWindowRect", width=width, height=height, x=0, y=0)
            self.until("() => new Promise(requestAnimationFrame)", 0)
            seen = self.evaluate("() => [innerWidth, innerHeight]")
            frame = [width - seen[0], height - seen[1]]
        if size[0] >= NARROWEST:
            self.ask("Navigate", url=file.resolve().as_uri())
        else:
            narrow = file.with_name("narrow.html")
            narrow.write_text(FRAME.format(*size, file.name), "utf-8")
            self.ask("Navigate", url=narrow.resolve().as_uri())
            self.ask("SwitchToFrame", id=0)
            narrow.unlink()
        seen = self.evaluate("() => [innerWidth, innerHeight]")
        return seen[0], seen[1]

    def until(self, script: str, limit_s: float = LOADED_S) -> bool:
        """Ask again until a function in JavaScript returns something true; whether it did."""
        end = time.monotonic() + limit_s
        while not (value := self.evaluate(script)) and time.monotonic() < end:
            time.sleep(0.1)
        return bool(value)

    def picture(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.ask("TakeScreenshot", full=False)))

    def press(self, *keys: str) -> None:
        """Press and let go one key after the other."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("PerformActions", actions=[{"type": "key", "id": "keys", "actions": strokes}])

    def press_tab(self) -> None:
        """Move the focus on."""
        self.press(TAB)

    def drag(self, *ways: tuple[tuple[int, int], tuple[int, int]], by: str = "touch") -> None:
        """Fingers that go down together, each at the begin of its way, and move to its end."""
        touches = [
            {
                "type": "pointer",
                "id": f"finger {n}",
                "parameters": {"pointerType": by},
                "actions": [
                    {"type": "pointerMove", "duration": 0, "x": begin[0], "y": begin[1]},
                    {"type": "pointerDown", "button": 0},
                    {"type": "pointerMove", "duration": 100, "x": end[0], "y": end[1]},
                    {"type": "pointerUp", "button": 0},
                ],
            }
            for n, (begin, end) in enumerate(ways)
        ]
        self.ask("PerformActions", actions=touches)
        self.ask("ReleaseActions")


def tried(browser: Browser) -> Iterator[str]:
    """What a timeline does not do of what keys and pointers should; each begins with all of it."""
    browser.evaluate(FOCUS)
    x, y = browser.evaluate(MIDDLE)
    whole = browser.evaluate(STRETCH)
    moves: dict[str, tuple[Callable[[], None], Callable[[list[float]], bool]]] = {
        "w zooms": (lambda: browser.press("w"), lambda now: now[1] - now[0] < whole[1]),
        "d moves": (lambda: browser.press("w", "d"), lambda now: now[0] + now[1] > whole[1] * 1.01),
        "a drag moves": (
            lambda: (browser.press("w"), browser.drag(((x, y), (x + 60, y)), by="mouse"))[0],
            lambda now: now[0] + now[1] < whole[1] * 0.99,
        ),
    }
    if browser.name == "firefox":
        moves["two fingers zoom"] = (
            lambda: browser.drag(((x, y), (x - 40, y)), ((x + 40, y), (x + 80, y))),
            lambda now: now[1] - now[0] < whole[1] * 0.9,
        )
    for what, (move, moved) in moves.items():
        browser.press(HOME)
        move()
        if not moved(browser.evaluate(STRETCH)):
            yield f"{what}: no"
    browser.press(HOME, "/", *SEARCHED, ENTER)
    if not browser.until("() => pinchpointTimeline.selected >= 0 && location.hash.length > 1", 5.0):
        yield "a search selects, and the address says it: no"
    browser.press(ESCAPE)


HOME, ENTER, ESCAPE, TAB = "\ue011", "\ue007", "\ue00c", "\ue004"  # as WebDriver writes keys
SEARCHED = "e"
STRETCH = "() => [pinchpointTimeline.from, pinchpointTimeline.to]"
FOCUS = """() => {
  const canvas = document.querySelector("#canvas");
  canvas.scrollIntoView({ block: "center" });
  canvas.focus();
}"""
MIDDLE = """() => {
  const box = document.querySelector("#canvas").getBoundingClientRect();
  return [Math.round(box.x + box.width * 0.6), Math.round(box.y + 100)];
}"""


@contextmanager
def firefox(command: str, scheme: str) -> Iterator[Browser]:
    """A Firefox without windows and with a profile of its own."""
    port = free_port()
    wanted = PREFERENCES | {"marionette.port": port}
    wanted["layout.css.prefers-color-scheme.content-override"] = int(scheme == "light")
    with TemporaryDirectory() as profile:
        lines = (f'user_pref("{key}", {json.dumps(value)});\n' for key, value in wanted.items())
        Path(profile, "user.js").write_text("".join(lines), "utf-8")
        arguments = ["--headless", "--marionette", "--no-remote", "--profile", profile]
        with started([command, *arguments], port) as stream, stream.makefile("rb") as answers:
            marionette_answer(answers)  # it says who it is
            number = iter(range(1_000_000))

            def ask(name: str, **parameters: Any) -> Any:
                message = json.dumps([0, next(number), f"WebDriver:{name}", parameters])
                stream.sendall(f"{len(message.encode())}:{message}".encode())
                _, _, error, result = marionette_answer(answers)
                if error is not None:
                    raise OSError(f"{name}: {error['error']}: {error['message']}")
                alone = isinstance(result, dict) and [*result] == ["value"]
                return result["value"] if alone else result

            ask("NewSession", capabilities={"alwaysMatch": {}})
            yield Browser("firefox", ask)


def marionette_answer(answers: Any) -> Any:
    """One message: how many bytes it has, a colon, and JSON."""
    length = b""
    while (byte := answers.read(1)) != b":":
        if not byte:
            raise OSError("Firefox has ended")
        length += byte
    return json.loads(answers.read(int(length)))


@contextmanager
def webkit(command: str, scheme: str) -> Iterator[Browser]:
    """WebKit's small browser, on the display of the environment."""
    port = free_port()
    dark = {"GTK_THEME": "Adwaita:dark"} if scheme == "dark" else {}
    mini = next(found for pattern in MINI_BROWSERS for found in Path("/").glob(pattern[1:]))
    options = {"binary": str(mini), "args": ["--automation"]}
    with started([command, f"--port={port}"], port, dark) as stream:
        stream.close()
        session = ""

        def ask(name: str, **parameters: Any) -> Any:
            method, path = PATHS[name]
            path = f"/session{session}{path}"
            return web_driver_answer(port, method, path, parameters)

        capabilities = {"alwaysMatch": {"webkitgtk:browserOptions": options}}
        session = "/" + ask("NewSession", capabilities=capabilities)["sessionId"]
        yield Browser("webkit", ask)
        ask("DeleteSession")


STARTED: dict[str, Callable[[str, str], AbstractContextManager[Browser]]] = {
    "firefox": firefox,
    "webkit": webkit,
}


def web_driver_answer(port: int, method: str, path: str, parameters: Mapping[str, Any]) -> Any:
    """The value that a driver answers with."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LOADED_S * 2)
    connection.request(method, path, json.dumps(parameters) if method == "POST" else None)
    response = connection.getresponse()
    value = json.loads(response.read())["value"]
    connection.close()
    if response.status != http.client.OK:
        raise OSError(f"{path}: {value['error']}: {value['message']}")
    return value


@contextmanager
def started(
    command: list[str], port: int, variables: Mapping[str, str] | None = None
) -> Iterator[socket.socket]:
    """A program that listens, as long as it is needed; and a connection to it."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(variables or {})},
    )
    end = time.monotonic() + START_S
    try:
        while True:
            try:
                stream = socket.create_connection(("127.0.0.1", port), timeout=LOADED_S * 2)
                break
            except ConnectionRefusedError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.1)
        with stream:
            yield stream
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
