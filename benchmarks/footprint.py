"""What the base install brings: every distribution that Pinchpoint pulls in, with its size.

./run bench footprint
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution


def main() -> None:
    """Print the tree's distributions, largest first."""
    found: dict[str, int] = {}
    collect("pinchpoint", found)
    found.pop("pinchpoint", None)
    for name, size in sorted(found.items(), key=lambda item: -item[1]):
        print(f"{name:24}{size / 1e6:8.1f} MB  {distribution(name).version}")
    print(f"{len(found)} distributions{sum(found.values()) / 1e6:17.1f} MB")


def collect(name: str, found: dict[str, int]) -> None:
    """Add a distribution and what it requires without extras."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return
    try:
        dist = distribution(name)
    except PackageNotFoundError:  # a requirement for another system
        return
    found[key] = size_bytes(dist)
    for requirement in dist.requires or ():
        if "extra ==" not in requirement:
            collect(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0], found)


def size_bytes(dist: Distribution) -> int:
    """Size of the installed files, compiled bytecode left out."""
    paths = (file.locate() for file in dist.files or () if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.exists())  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
