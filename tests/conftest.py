import gc
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import settings

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

# A shell's "&" ignores Ctrl-C, and so would every program that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite expected outputs, to be reviewed"
    )


@pytest.fixture
def golden(request):
    """Compare a text with the file ``golden/NAME`` beside the test."""

    def check(name, text):
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return check


@pytest.fixture(scope="module")
def browser():
    """A Chromium without a window, for the tests of one file."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield chromium
        chromium.close()


gc.disable()  # until all tests are collected: none can be freed, all would be looked through


def pytest_collection_finish():
    """What is there now stays, and is not looked through again by each collection of garbage."""
    gc.freeze()
    gc.enable()
