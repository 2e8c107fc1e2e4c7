"""Builds the documentation site: written pages, and pages made from the source.

.venv/bin/python docs/site/build.py [FOLDER]     writes FOLDER/site (default: build/documentation)

``pages()`` has everything that does not need zensical.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from command_pages import command_pages
from document_pages import document_pages
from links import link_names, relink
from metric_page import metric_page
from navigation import as_toml, navigation
from rule_pages import rule_pages

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DOCS = ROOT / "docs"
SHIM = HERE / "worker-in-a-frame.js"
FETCHED = re.compile(r"https://[\w.]+/iframe-worker/shim")  # what zensical would load in its place
OF_A_PAGE = re.compile(r'href="([./]*)site\.css"')  # the way from a page to the root
OF_THE_PROJECT = {
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "changelog.md": ROOT / "CHANGELOG.md",
}


def pages() -> dict[str, str]:
    """The Markdown of every page, by its path on the site, with links between pages."""
    files = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    files |= OF_THE_PROJECT
    places = {path.resolve(): page for page, path in files.items()}
    written = {page: path.read_text("utf-8") for page, path in files.items()}
    made = rule_pages(written) | command_pages() | document_pages() | metric_page()
    written = {page: relink(text, files[page], page, places) for page, text in written.items()}
    return {page: link_names(text, page) for page, text in (written | made).items()}


def title(text: str) -> str:
    """The first heading of a page, without code marks."""
    match = re.search(r"^# (.*)$", text, re.M)
    return match[1].replace("`", "") if match else "untitled"


def write_source(folder: Path) -> Path:
    """Make ``folder`` anew, with pages and settings for zensical; returns the settings file."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = pages()
    for page, text in texts.items():
        path = folder / "pages" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for path in (HERE / "site.css", SHIM):
        shutil.copy(path, folder / "pages")
    nav = as_toml(navigation({page: title(text) for page, text in texts.items()}))
    settings = (HERE / "zensical.toml").read_text("utf-8").replace("# NAVIGATION", nav)
    (folder / "zensical.toml").write_text(settings, "utf-8")
    return folder / "zensical.toml"


def build(folder: Path) -> Path:
    """Build the site in ``folder``; returns the folder of its HTML."""
    settings = write_source(folder)
    words = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(settings)]
    plain = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=plain)
    if done.returncode:
        raise SystemExit(f"zensical failed\n{done.stdout}{done.stderr}")
    for path in (folder / "site").rglob("*.html"):
        text = path.read_text("utf-8")
        path.write_text(FETCHED.sub(f"{OF_A_PAGE.search(text)[1]}{SHIM.name}", text), "utf-8")
    return folder / "site"


if __name__ == "__main__":
    site = build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build/documentation")
    sys.stderr.write(f"{site}/index.html\n")
