"""Writes the table of docs/reference/formats.md from the importers; a test compares."""

import re
from pathlib import Path

from pinchpoint.importers.open import files, reads

PAGE = Path(__file__).parent / "reference/formats.md"
TABLE = re.compile(r"(<!-- formats -->\n).*?(<!-- end of formats -->\n)", re.S)


def text(page: str) -> str:
    """The page with its table as it should be."""
    lines = ["| format | files | written by | read | not read |\n|---|---|---|---|---|\n"]
    told = reads()
    for name, (names, writer) in files().items():
        read, not_read = told[name]
        shown = " ".join(f"`{one}`" for one in names.split()) if "folder" not in names else names
        lines.append(f"| {name} | {shown} | {writer} | {', '.join(read)} | {not_read} |\n")
    return TABLE.sub(lambda found: f"{found[1]}{''.join(lines)}{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text("utf-8")), "utf-8")
