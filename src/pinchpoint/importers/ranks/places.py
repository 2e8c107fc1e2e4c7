"""Where recordings lie: files, folders, globs, lists of paths, object stores."""

import glob
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from pinchpoint.errors import PinchpointError, UnreadableFile, UsageError
from pinchpoint.importers.files.remote import file_system, is_url
from pinchpoint.importers.files.strangers import is_note_of_ascend
from pinchpoint.importers.open import format_of, read_head
from pinchpoint.regex import regex
from pinchpoint.run_folder.layout import ENVIRONMENT_FILE, METRICS_FILE, RUN_FILE, TRACES

_PLAIN = (".json", ".sqlite", ".xplane.pb")
_PACKED = ("", ".gz", ".zst", ".xz", ".bz2")
RECORDINGS = (*(p + q for p in _PLAIN for q in _PACKED), ".nsys-rep", ".pftrace")
_XPLANE = ".xplane.pb"
_COPIES_OF_XPLANE = (".trace.json.gz", "perfetto_trace.json.gz")  # by JAX, of a part of its events
_NOT_RECORDINGS = (RUN_FILE, METRICS_FILE, ENVIRONMENT_FILE, "provenance.json", "facts.json")
_BENCH_SESSION, _BENCH_PROFILE = "session.json", "profile"  # see bench_folder.py
_HEAD_BYTES = 1 << 16  # eight devices are described before what says the rank
# Beside the recordings of a job, by the same program: what its operators were given, its memory.
_BESIDE = regex(r"(^|[._-])(et|execution_trace|chakra|memory_timeline|memory)([._-]|$)")
_BESIDE_SIGNS = (b'"schema"', b"[[")
_NOTES_OF_ASCEND = regex(r"^(profiler_(info|metadata)|communication)[\w.]*\.json")
_LONGEST_LIST_BYTES = 16 << 20  # a document of a run folder takes kilobytes
_MOST_BELOW = 1_000_000  # ten files of each of 100,000 ranks; listed in some seconds
_MOST_LOOKED_AT = 1000  # files whose content is looked at
_ONE_JOB = "name the folder of one job: pinchpoint ranks DIR"


def listed(places: list[str]) -> Iterator[str]:
    """Every path or URL, each once, in order."""
    seen: set[str] = set()
    for place in places:
        for path in _listed(place, ()):
            if path not in seen:
                seen.add(path)
                yield path


def _listed(place: str, inside: tuple[str, ...]) -> Iterator[str]:
    """``inside``: the lists that name this place, one in the other."""
    if is_url(place):
        yield from _remote(place)
        return
    path = Path(place)
    if path.is_dir():
        yield from (str(p) for p in _in_folder(path))
    elif path.suffix == ".txt" and path.is_file():
        if place in inside:
            raise UnreadableFile(f"{place}: a list that names itself", hint="name recordings in it")
        for line in _lines(path):
            yield from _listed(line, (*inside, place))
    elif path.exists():
        yield place
    elif glob.has_magic(place):
        matches = sorted(glob.glob(place, recursive=True))  # noqa: PTH207 - may be absolute
        for match in matches:
            yield from _listed(match, inside)
    else:
        raise UnreadableFile(f"{place}: no such file", hint="check the path")


def _in_folder(folder: Path) -> list[Path]:
    """Recordings below a folder; of a run folder those of its ranks, of a bench folder none but
    those of its profile."""
    if (folder / _BENCH_SESSION).is_file():
        folder = folder / _BENCH_PROFILE
    inner = folder / TRACES
    if (folder / RUN_FILE).is_file() and inner.is_dir():
        folder = inner
    found = [str(p) for p in _below(folder) if p.is_file() and not _is_beside(p)]
    return [Path(p) for p in sorted(_without_copies(found))]


def _below(folder: Path) -> Iterator[Path]:
    """What is called like a recording. Links are not followed; what is forbidden is left out."""
    if folder.resolve() == Path(folder.resolve().anchor):
        raise UsageError(f"{folder}: the whole disk, not the folder of a job", hint=_ONE_JOB)
    seen = 0
    for place, _, names in os.walk(folder):
        seen += len(names)
        if seen > _MOST_BELOW:
            raise UsageError(f"{folder}: more than {_MOST_BELOW:,} files below", hint=_ONE_JOB)
        for name in names:
            if looks_like_a_recording(name) and not name.startswith("."):
                yield Path(place, name)


def _is_beside(path: Path) -> bool:
    """Whether a file accompanies a recording of the same rank, as its name and head say."""
    name = path.name.lower()
    if not _BESIDE.search(name) and not _NOTES_OF_ASCEND.match(name):
        return False
    start = head_text(str(path))[:1000].lstrip().encode()
    if _NOTES_OF_ASCEND.match(name):
        return is_note_of_ascend(start)
    return any(sign in start for sign in _BESIDE_SIGNS) and b"traceEvents" not in start


def runs_below(folder: Path) -> list[Path]:
    """Run folders below a folder, itself left out; of one inside another the outer."""
    found = []
    for place, inner, names in os.walk(folder):
        if RUN_FILE in names and Path(place) != folder:
            found.append(Path(place))
            inner.clear()
    return sorted(found)


def others_in(folder: Path) -> list[Path]:
    """Files below a folder that are read and are no recording of a rank: snapshots, tables."""
    found = []
    for seen, path in enumerate(sorted(p for p in folder.rglob("*") if p.is_file())):
        if seen == _MOST_LOOKED_AT:
            break
        if not looks_like_a_recording(path.name) and format_of(path) is not None:
            found.append(path)
    return found


def _without_copies(paths: list[str]) -> list[str]:
    """JAX writes one recording in two formats beside each other; the XPlane file has more."""
    originals = {p.rpartition("/")[0] for p in paths if p.lower().endswith(_XPLANE)}
    return [
        p
        for p in paths
        if not (p.lower().endswith(_COPIES_OF_XPLANE) and p.rpartition("/")[0] in originals)
    ]


def looks_like_a_recording(name: str) -> bool:
    """Whether the name of a file ends as names of recordings do."""
    lower = name.lower()
    return lower.endswith(RECORDINGS) and lower not in _NOT_RECORDINGS


def _lines(path: Path) -> list[str]:
    if path.stat().st_size > _LONGEST_LIST_BYTES:
        raise UsageError(f"{path}: too long for a list of paths", hint="one path a line")
    lines = [line.strip() for line in path.read_text("utf-8", "replace").splitlines()]
    inside = [line for line in lines if line and not line.startswith("#")]
    return [p if is_url(p) or Path(p).is_absolute() else str(path.parent / p) for p in inside]


def _remote(url: str) -> Iterator[str]:
    system, path = file_system(url)
    try:
        if glob.has_magic(path):
            names = system.glob(path)
        elif system.isdir(path):
            inside = system.find(path)
            found = [n for n in inside if looks_like_a_recording(n.rsplit("/", 1)[-1])]
            names = _without_copies(found)
        else:
            yield url
            return
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{url}: {error}", hint="check the URL and the credentials") from None
    for name in sorted(names):
        yield system.unstrip_protocol(name)


def head_text(path: str) -> str:
    """The first bytes of a local file as text, gunzipped; empty where it cannot be read."""
    where = Path(path)
    try:
        read_head(where)  # refuses what is no file
        with where.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head[:2] == b"\x1f\x8b":
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
    except (PinchpointError, OSError, zlib.error):
        return ""
    return head.decode("utf-8", "replace")
