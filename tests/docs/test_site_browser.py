"""The site in a real browser: opened from disk, searched, and nothing fetched from elsewhere."""

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


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_opens_from_disk_and_its_search_finds(site, width):
    complaints, requests = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "tutorial/hidden-item.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.keyboard.press("Control+k")
        page.keyboard.type("garbage collection")
        page.get_by_text("python-gc").first.wait_for()
        browser.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
