"""Which files can be read."""

from pinchpoint.importers import formats


def command() -> int:
    """List the formats that Pinchpoint reads, one a line."""
    print("\n".join(formats()))
    return 0
