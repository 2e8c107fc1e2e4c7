"""Which files can be read, and what is read from them."""

from pinchpoint.cli.output import show
from pinchpoint.importers.open import files, reads


def command() -> int:
    """List the formats that Pinchpoint reads: name, usual file names, what writes them, what of
    them is read and what is not.

    Files may be packed (gzip, Zstandard, xz, bzip2), in a zip or tar, or behind a URL.
    """
    known, parts = files(), reads()
    width = max(map(len, known))
    names_width = max(len(names) for names, _ in known.values())
    lines = []
    for name, (names, writer) in known.items():
        read, not_read = parts[name]
        lines.append(f"{name:{width}}  {names:{names_width}}   {writer}\n")
        said = [f"reads {', '.join(read)}"] if read else []
        said += [f"not: {not_read}"] if not_read else []
        lines.append(f"{'':{width}}  {'; '.join(said)}\n")
    show("".join(lines))
    return 0
