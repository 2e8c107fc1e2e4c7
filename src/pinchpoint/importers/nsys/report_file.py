"""``.nsys-rep`` reports: only nsys itself can read them, so an installed one exports them.

nsys refuses reports newer than itself, and looks for Python scripts in its working directory. So
the versions are compared first, and it runs in an empty folder.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from pinchpoint.errors import UnreadableFile
from pinchpoint.replacing import scratch_folder

MAGIC = b"NVIDIA Tegra Profiler Report "
Version = tuple[int, ...]

_INSTALLED = ("/opt/nvidia/nsight-systems", "/usr/local/cuda/bin", "/usr/lib/nsight-systems")
_BLOBS_SINCE: Version = (2024, 6)  # NCCL payloads are exported with --include-blobs since then
_MOST_SECONDS = 600  # an export of gigabytes takes minutes


def report_version(head: bytes) -> Version | None:
    """The version of nsys that wrote a report, from its first bytes; None before about 2023.4."""
    text = head[len(MAGIC) :].split(b"\n", 1)[0].decode("ascii", "replace")
    return _version(text.replace("@", "."))


@contextmanager
def exported(path: Path, shown: Path) -> Iterator[Path]:
    """The report as a temporary SQLite export.

    Raises UnreadableFile, with the command that exports it, where no nsys here can.
    """
    with path.open("rb") as file:
        needed = report_version(file.read(256))
    nsys, found = _newest_nsys()
    plain = shown.with_suffix("") if shown.suffix == ".gz" else shown
    unpack = "" if plain == shown else "unpack it, and "
    command = f"nsys export --type sqlite {quote(str(plain))}"
    wanted = "" if needed is None else f" {_dotted(needed[:3])} or newer"
    if nsys is None:
        raise UnreadableFile(
            f"{shown}: a report of Nsight Systems, and there is no nsys here to export it",
            hint=f"{unpack}run where nsys{wanted} is installed, then read the result: {command}",
        )
    if needed is not None and found is not None and found < needed[: len(found)]:
        raise UnreadableFile(
            f"{shown}: written by nsys {_dotted(needed[:3])}; the nsys here is {_dotted(found[:3])}"
            " and cannot read newer reports",
            hint=f"{unpack}run with nsys{wanted}, then read the result: {command}",
        )
    with scratch_folder() as folder:
        yield _export(nsys, found, path, shown, folder)


def _export(nsys: Path, version: Version | None, path: Path, shown: Path, folder: Path) -> Path:
    empty, target = folder / "empty", folder / "export.sqlite"
    empty.mkdir()
    words = [str(nsys), "export", "--type", "sqlite", "--output", str(target)]
    if version is not None and version >= _BLOBS_SINCE:
        words += ["--include-blobs", "true"]
    try:
        done = subprocess.run(
            [*words, str(path.resolve())],
            cwd=empty,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadableFile(
            f"{shown}: {nsys} did not export it ({error})", hint="export it by hand to see why"
        ) from None
    if done.returncode or not target.exists():
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise UnreadableFile(
            f"{shown}: {nsys} could not export it ({said[-1] if said else done.returncode})",
            hint="the report may be cut off; copy it again",
        )
    return target


def _newest_nsys() -> tuple[Path | None, Version | None]:
    """The nsys on the PATH, else the newest one in the usual places."""
    if (on_path := shutil.which("nsys")) is not None:
        return Path(on_path), _nsys_version(Path(on_path))
    places = [p for root in _INSTALLED for p in Path(root).glob("**/bin/nsys")]
    places += [Path(root) / "nsys" for root in _INSTALLED]
    known = [(_nsys_version(p) or (), p) for p in places if p.is_file()]
    if not known:
        return None, None
    version, path = max(known)
    return path, version or None


def _nsys_version(nsys: Path) -> Version | None:
    with scratch_folder() as empty:
        try:
            done = subprocess.run(
                [str(nsys), "--version"],
                cwd=empty,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return _version(done.stdout.decode("utf-8", "replace"))


def _version(text: str) -> Version | None:
    match = re.search(r"\b(20\d\d)\.(\d+)\.(\d+)", text)
    return None if match is None else tuple(int(part) for part in match.groups())


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
