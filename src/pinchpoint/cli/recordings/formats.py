"""Which files can be read."""

from pinchpoint.cli.output import show
from pinchpoint.importers.open import files


def command() -> int:
    """List the formats that Pinchpoint reads: name, usual file names, what writes them."""
    known = files()
    width = max(map(len, known))
    names_width = max(len(names) for names, _ in known.values())
    show(
        "".join(
            f"{name:{width}}  {names:{names_width}}   {writer}\n"
            for name, (names, writer) in known.items()
        )
    )
    return 0
