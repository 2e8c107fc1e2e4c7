"""A page as GitHub-flavoured Markdown, for job summaries and pull requests."""

from collections.abc import Iterator

from pinchpoint.report.benchmarks.page import Page, Table
from pinchpoint.report.markdown import code, escape
from pinchpoint.report.plain import plain

SUMMARY_LIMIT_BYTES = 1_000_000  # GitHub takes 1 MiB a step


def render(page: Page) -> str:
    """Markdown that ends with a newline."""
    text = "\n".join(_lines(page)) + "\n"
    if len(text.encode()) <= SUMMARY_LIMIT_BYTES:
        return text
    kept = text.encode()[: SUMMARY_LIMIT_BYTES - 100].decode("utf-8", "ignore")
    return kept.rpartition("\n")[0] + "\n\n(cut: the whole result is in result.json)\n"


def _lines(page: Page) -> Iterator[str]:
    yield f"## {escape(plain(page.title))}"
    yield ""
    headline = escape(plain(page.headline, 1000))
    yield f"**{page.verdict}**: {headline}" if page.verdict else headline
    for table in page.tables:
        yield ""
        yield from _table(table)
    for word, texts in (("warning", page.warnings), ("note", page.notes)):
        if texts:
            yield ""
        yield from (f"- {word}: {escape(plain(text, 500))}" for text in texts)
    if page.next_command:
        yield ""
        yield f"Next: {code(plain(page.next_command))}"


def _table(table: Table) -> Iterator[str]:
    header = (table.title, *table.header[1:])
    yield _row(header)
    yield "|" + "|".join([" --- ", *[" ---: "] * (len(header) - 1)]) + "|"
    yield from (_row(row) for row in table.rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(escape(plain(cell)) for cell in cells) + " |"
