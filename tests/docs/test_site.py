"""The documentation site: every page in the navigation, no broken link, nothing from elsewhere.

Also in a real browser: opened from disk, and searched.
"""

import contextlib
import importlib
import re
import sys
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from pinchpoint.cli.help import commands
from pinchpoint.diagnosis.registry import rule_ids

ROOT = Path(__file__).parents[2]
MODULES = (
    "build", "navigation", "links", "rule_pages", "command_pages", "document_pages", "metric_page",
)  # fmt: skip
NOT_RULES = {"nvidia-smi", "trtllm-bench"}  # other words with a hyphen that stand alone in code


@pytest.fixture(scope="module")
def site():
    """The scripts of ``docs/site`` as modules, and nothing left behind."""
    sys.path.insert(0, str(ROOT / "docs/site"))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(ROOT / "docs/site"))
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def pages(site):
    return site["build"].pages()


def spans(text):
    """What stands in code outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def test_every_page_is_in_the_navigation_once(site, pages):
    titles = {page: site["build"].title(text) for page, text in pages.items()}
    tree = site["navigation"].navigation(titles)
    assert sorted(site["navigation"]._paths(tree)) == sorted(pages)
    assert "untitled" not in titles.values()


def test_a_page_without_a_place_is_refused(site, pages):
    titles = {page: page for page in pages} | {"lost.md": "Lost"}
    with pytest.raises(site["navigation"].NoPlace, match=r"lost\.md"):
        site["navigation"].navigation(titles)


@pytest.mark.parametrize("folder", ["rules", "commands", "documents"])
def test_reference_pages_are_made_from_the_source(pages, folder):
    names = {page.split("/")[2][:-3] for page in pages if page.startswith(f"reference/{folder}/")}
    known = {"rules": set(rule_ids()), "commands": set(commands()), "documents": {"report"}}
    assert names >= known[folder] | {"index"}


def test_rules_that_symptoms_name_exist(pages):
    hyphened = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
    for page, text in pages.items():
        if page.startswith(("symptoms/", "howto/", "tutorial/")):
            named = {span for span in spans(text) if hyphened.fullmatch(span)}
            assert named <= set(rule_ids()) | NOT_RULES, page


def test_commands_and_options_that_pages_name_exist(pages):
    written = re.compile(r"\bpinchpoint ([a-z]+)([^`|\n]*)")
    for page, text in pages.items():
        if page.startswith(("symptoms/", "howto/", "tutorial/", "explanation/")):
            blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
            own = [b for b in blocks if not b.startswith("$")]
            for name, rest in written.findall("\n".join([*own, *spans(text)])):
                assert name in commands(), f"{page}: {name}"
                options = set(re.findall(r"(?<= )--[a-z][a-z-]*", rest.partition(" -- ")[0]))
                programs = re.split(r"\b(?:torchrun|\w+\.py)\b", rest)[0]
                options &= set(re.findall(r"--[a-z-]+", programs))
                known = set(re.findall(r"--[a-z-]+", pages[f"reference/commands/{name}.md"]))
                assert options <= known, f"{page}: pinchpoint {name} {options - known}"


def test_links_between_pages(site):
    relink, link_names = site["links"].relink, site["links"].link_names
    places = {(ROOT / "docs/b/c.md").resolve(): "b/c.md"}
    text = "[c](../b/c.md#x) [no page](gone.py) [out](https://a.b)\n```\n[c](../b/c.md)\n```"
    new = relink(text, ROOT / "docs/a/a.md", "a/a.md", places)
    assert new == "[c](../b/c.md#x) no page [out](https://a.b)\n```\n[c](../b/c.md)\n```"
    named = link_names("# `sync-in-loop`\n`sync-in-loop` `pinchpoint bench ab` `other`", "a/a.md")
    assert named == (
        "# `sync-in-loop`\n[`sync-in-loop`](../reference/rules/sync-in-loop.md) "
        "[`pinchpoint bench ab`](../reference/commands/bench.md#pinchpoint-bench-ab) `other`"
    )


@pytest.fixture(scope="module")
def built(site, tmp_path_factory):
    if find_spec("zensical") is None:
        pytest.skip("zensical is not installed")
    return site["build"].build(tmp_path_factory.mktemp("documentation"))


def values(text, tags, attribute):
    """What an attribute of these elements says, once each."""
    quoted = rf"""<(?:{tags})\b[^<>]*?\s{attribute}=(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"""
    return {unescape("".join(found)) for found in re.findall(quoted, text)}


def test_no_link_or_anchor_is_broken(built):
    texts = {path.as_uri(): path.read_text("utf-8") for path in built.rglob("*.html")}
    ids = {path: values(text, r"\w+", "id") for path, text in texts.items()}
    broken = [
        f"{path}: {link}"
        for path, text in texts.items()
        if not path.endswith("404.html")  # its links are those of the root, wherever it is shown
        for link in values(text, "a", "href")
        if link and not re.match(r"[a-z]+:", link) and not leads_somewhere(path, link, ids)
    ]
    assert len(texts) > 100
    assert sum(map(len, ids.values())) > 10 * len(texts)
    assert broken == []


def leads_somewhere(page, link, ids):
    where, anchor = urldefrag(urljoin(page, link))
    file = where if where in ids else f"{where.removesuffix('/')}/index.html"
    return file in ids and (anchor in ("", "__skip") or unquote(anchor) in ids[file])


def test_nothing_is_fetched_from_elsewhere(built):
    for path in built.rglob("*.html"):
        text = path.read_text("utf-8")
        fetched = values(text, "script|img|iframe", "src") | values(text, "link", "href")
        assert fetched, path
        assert [name for name in fetched if re.match(r"(https?:)?//", name)] == [], path
    for path in built.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", path.read_text("utf-8")), path


class Opened:
    """A page of the site in a browser."""

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


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["tutorial/hidden-item.html", "symptoms/kernels.html"])
def test_a_page_opens_from_disk_and_is_no_wider_than_the_window(built, browser, name, width):
    opened = Opened(browser, built, name, width)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.is_fine()


@pytest.mark.browser
def test_the_search_works_from_disk(built, browser):
    from playwright.sync_api import TimeoutError as NotThere

    opened = Opened(browser, built, "index.html", 1280)
    opened.page.locator(".md-search__button").click()
    opened.page.locator("input:focus").wait_for()
    found = opened.page.get_by_text("Garbage collection stops").locator("visible=true").first
    seen = False
    for _ in range(30):  # what is typed before the index is read finds nothing, as on the web
        opened.page.keyboard.type("garbage collection")
        with contextlib.suppress(NotThere):
            found.wait_for(timeout=2_000)  # results are drawn anew while more of them arrive
            seen = True
            break
        opened.page.locator("input:focus").fill("")
    assert seen
    assert opened.is_fine()
