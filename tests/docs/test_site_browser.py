"""The site in a real browser: opened from disk, searched, and nothing fetched from elsewhere."""

import contextlib
import importlib
import shutil
import sys
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("zensical", reason="zensical is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SCRIPTS = Path(__file__).parents[2] / "docs/site"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    before = set(sys.modules)
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("build").build(tmp_path_factory.mktemp("site"))
    finally:
        sys.path.remove(str(SCRIPTS))
        for name in set(sys.modules) - before:
            if str(SCRIPTS) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield chromium
        chromium.close()


class Opened:
    def __init__(self, browser, site, name, width):
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto((site / name).as_uri())

    def is_fine(self):
        away = [url for url in self.requests if not url.startswith(("file:", "data:"))]
        return (self.complaints, away) == ([], [])


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["tutorial/hidden-item.html", "symptoms/kernels.html"])
def test_a_page_opens_from_disk_and_is_no_wider_than_the_window(site, browser, name, width):
    opened = Opened(browser, site, name, width)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.is_fine()


def test_the_search_works_from_disk(site, browser):
    opened = Opened(browser, site, "index.html", 1280)
    opened.page.locator(".md-search__button").click()
    opened.page.locator("input:focus").wait_for()
    found = opened.page.get_by_text("Garbage collection stops").locator("visible=true").first
    for _ in range(6):  # what is typed before the index is read finds nothing, as on the web
        opened.page.keyboard.type("garbage collection")
        with contextlib.suppress(sync_api.TimeoutError):
            found.wait_for(timeout=10_000)
            break
        opened.page.locator("input:focus").fill("")
    assert found.is_visible()
    assert opened.is_fine()
