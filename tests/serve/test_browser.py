"""Choosing and comparing in a real browser, with its policy in force."""

import shutil
from pathlib import Path

import pytest

from pinchpoint.serve.app import LOOPBACK_NAMES, application
from serving import served

pytest.importorskip("starlette", reason="Starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"

pytestmark = pytest.mark.browser


def test_from_the_list_to_a_report_and_a_comparison(browser, tmp_path):
    for name in ("one.json.gz", "two.json.gz"):
        shutil.copy(DEMO, tmp_path / name)
    complaints = []
    with served(application(tmp_path, hosts=LOOPBACK_NAMES)) as port:
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/")
        assert page.evaluate("getComputedStyle(document.querySelector('section')).borderRadius")
        page.click("text=one.json.gz")
        page.wait_for_selector("#timeline[data-ready]")
        page.go_back()
        page.check("input[name=a][value='one.json.gz']")
        page.check("input[name=b][value='two.json.gz']")
        page.click("text=compare A with B")
        page.wait_for_selector("text=where the step goes")
        page.close()
    assert [text for text in complaints if "favicon" not in text] == []
