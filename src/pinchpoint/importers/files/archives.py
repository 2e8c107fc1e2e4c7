"""Recordings in a zip or tar archive, as temporary files for as long as they are read.

Browsers, CI services and clusters hand out recordings like this. An archive can claim anything:
only what its bytes really unpack to counts, and it is bounded. Links and devices are left out, and
no name leads out of the temporary folder.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from pinchpoint.errors import (
    HostileFile,
    PinchpointError,
    UnreadableFile,
    out_of_memory,
)
from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.later_lines import may_be_a_log
from pinchpoint.importers.files.packed import Budget, Head, head_of, unpack
from pinchpoint.importers.files.strangers import guess, unmistakable
from pinchpoint.replacing import scratch_folder
from pinchpoint.run_folder.layout import RUN_FILE

if TYPE_CHECKING:
    import tarfile
    import zipfile

ZIP_MAGIC = b"PK\x03\x04"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257  # POSIX and GNU; older tars have no mark
MOST_DIRECTORY_BYTES = 4 << 20  # some 50,000 names of a zip; all of them are read at once
MOST_MEMBERS = 10_000  # of a tar; a job of 1,000 ranks with ten files each
MOST_LOOKED_INTO = 1000  # members
MOST_LAYERS = 4  # a zip of a tar of gzipped files has three
_HEAD_BYTES = 4096  # as open.py reads
_DEEPER_BYTES = 1 << 20  # a server that is installed first says in this what it is
_MOST_LOOKED_DEEPER = 32  # members; a job keeps a log of each process
_SHOWN = 3  # members that an error names
_LONGEST_NAME = 100  # characters of each part
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"
_END_REACH_BYTES = (1 << 16) + 128  # a comment of at most 64 KB follows
_BENCH_SESSION = "session.json"  # of a bench folder
_CUT = "fetch it again; to go on with half a download: curl -C - -LO URL"

# Of the disk that is unpacked to; any other (a place before the file's begin) is damage.
_NO_DAMAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)

IsRecording = Callable[[str, bytes], bool]  # by name and first bytes


def is_archive(head: bytes) -> bool:
    """Whether a file that begins like this holds other files."""
    return head.startswith(ZIP_MAGIC) or head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)


def must_be_unpacked(head: Head) -> bool:
    """Whether readers cannot take a file as it is: they unpack one layer of gzip themselves."""
    return is_archive(head.text) or [p.name for p in head.packings] not in ([], ["gzip"])


@dataclass(frozen=True)
class Member:
    """A file of an archive."""

    name: str
    opened: Callable[[], IO[bytes]]

    def head(self, size: int = _HEAD_BYTES) -> Head:
        """Its first bytes, unpacked; of what cannot be looked into, none."""
        try:
            with self.opened() as source:
                return head_of(source, size)
        except PinchpointError:
            return Head(b"")


@contextmanager
def plain_file(path: Path, head: Head, is_recording: IsRecording) -> Iterator[Path]:
    """The one recording in a packed file or archive; a folder where it holds a run folder.

    UnreadableFile unless there is exactly one; problems with it are said of the file itself.
    """
    budget = Budget.of(path)
    with scratch_folder() as folder:
        inside, said = path, ""
        for layer in range(MOST_LAYERS + 1):
            if layer == MOST_LAYERS:
                raise HostileFile(
                    f"{path}: packed more than {MOST_LAYERS} times", hint="unpack it yourself"
                )
            if must_be_unpacked(head) and head.packings:
                to = folder / f"{layer}" / _without_suffix(inside.name)
                to.parent.mkdir()
                unpack(inside, head.packings[0], to, budget)
                inside, head = to, _head(to)
            elif must_be_unpacked(head):
                to = folder / f"{layer}"
                inside, said = _taken_out(path, inside, to, budget, is_recording)
                head = Head(b"") if inside.is_dir() else _head(inside)
            else:
                break
        try:
            yield inside
        except PinchpointError as error:
            error.message = error.message.replace(
                str(inside), f"{path}, {said}" if said else f"{path}"
            )
            error.args = (error.message,)
            raise


@contextmanager
def folder_of(path: Path, head: Head, is_recording: IsRecording) -> Iterator[Path]:
    """A folder of the recordings in an archive that holds several; else the file itself."""
    budget = Budget.of(path)
    with scratch_folder() as folder, ExitStack() as stack:
        inside = path
        if head.packings and is_archive(head.text):
            inside = folder / "unpacked"
            unpack(path, head.packings[0], inside, budget)
            head = _head(inside)
        if head.packings or not is_archive(head.text):
            yield path
            return
        members = stack.enter_context(_members(path, inside))
        with _damage_said(path):
            found = _recordings(members, is_recording)
        if len(found) < 2 or _is_run_folder(members):
            stack.close()
            yield path
            return
        _must_be_all(path, members)
        with _damage_said(path):
            _extract(found, folder / path.name, budget)
        stack.close()
        yield folder / path.name


def _must_be_all(path: Path, members: list[Member]) -> None:
    """Refuse what was not wholly looked into: an answer about a part would be taken for all."""
    if len(members) > MOST_LOOKED_INTO:
        raise HostileFile(
            f"{path}: an archive of {len(members):,} files, several of them recordings; of more "
            f"than {MOST_LOOKED_INTO:,} not all are looked into",
            hint="unpack it, and give the folder: pinchpoint diagnose FOLDER; or give one of them",
        )


def _head(path: Path) -> Head:
    with path.open("rb") as file:
        return head_of(file, _HEAD_BYTES)


def _without_suffix(name: str) -> str:
    """``trace.json.zst`` is ``trace.json`` inside; ``job.tgz`` is a tar."""
    return name.rpartition(".")[0] or "unpacked"


def _taken_out(
    path: Path, archive: Path, folder: Path, budget: Budget, is_recording: IsRecording
) -> tuple[Path, str]:
    """The recording, and what it is called in the archive."""
    folder.mkdir()
    with _damage_said(path), _members(path, archive) as members:
        if root := _is_run_folder(members):
            _extract(members, folder, budget)
            return folder / _inner(root).parent, root
        member = _chosen(path, members, is_recording)
        return _extract([member], folder, budget, flat=True), member.name


def _is_run_folder(members: list[Member]) -> str | None:
    """The document by which a run folder or bench folder is known, if there is one of them."""
    known = [m.name for m in members if m.name.rpartition("/")[2] in (RUN_FILE, _BENCH_SESSION)]
    return known[0] if len(known) == 1 else None


@contextmanager
def _members(path: Path, archive: Path) -> Iterator[list[Member]]:
    """The files that the user put into an archive."""
    with ExitStack() as stack:
        with _damage_said(path):
            file = stack.enter_context(archive.open("rb"))
            start = file.read(len(ZIP_MAGIC))
            file.seek(0)
            if start == ZIP_MAGIC:
                import zipfile

                _check_directory(path, file)
                found = _of_zip(stack.enter_context(zipfile.ZipFile(file)))
            else:
                import tarfile

                found = _of_tar(path, stack.enter_context(tarfile.open(fileobj=file, mode="r:")))
        yield [m for m in found if _is_of_the_user(m.name)]


def _of_zip(archive: "zipfile.ZipFile") -> list[Member]:
    return [
        Member(m.filename, lambda m=m: archive.open(m))  # type: ignore[misc]
        for m in archive.infolist()
        if not m.is_dir()
    ]


def _of_tar(path: Path, archive: "tarfile.TarFile") -> list[Member]:
    found: list[Member] = []
    seen = 0
    while (info := archive.next()) is not None:
        seen += 1
        if seen > MOST_MEMBERS:
            raise HostileFile(
                f"{path}: a tar of far too many files",
                hint="unpack it, and give the recording in it",
            )
        if info.isreg():
            found.append(Member(info.name, lambda i=info: cast(IO[bytes], archive.extractfile(i))))  # type: ignore[misc]
    return found


@contextmanager
def _damage_said(path: Path) -> Iterator[None]:
    """The one place that no error of an archive passes: what it says is never our fault."""
    try:
        yield
    except PinchpointError:
        raise
    except OSError as error:
        if error.errno in _NO_DAMAGE:
            import tempfile

            raise UnreadableFile(
                f"{path}: cannot be unpacked ({error.strerror or error})",
                hint=f"free space in {tempfile.gettempdir()}, or set TMPDIR",
            ) from None
        raise _damaged(path, error) from error
    except Exception as error:
        if (lack := out_of_memory(error, path)) is not None:
            raise lack from None
        if type(error) is RuntimeError:  # what zipfile raises of an encrypted member
            raise UnreadableFile(
                f"{path}: the zip wants a password", hint="unpack it, and give the recording in it"
            ) from None
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> UnreadableFile:
    what = str(error) or type(error).__name__
    return UnreadableFile(f"{path}: damaged or cut-off archive ({what})", hint=_CUT)


def _check_directory(path: Path, file: IO[bytes]) -> None:
    """Refuse a directory of millions of names before it is read."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _END_REACH_BYTES))
    tail = file.read()
    at, at_64 = tail.rfind(_END), tail.rfind(_END_64)
    size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if size == 0xFFFFFFFF and at_64 >= 0:
        size = int.from_bytes(tail[at_64 + 40 : at_64 + 48], "little")
    if size > MOST_DIRECTORY_BYTES:
        raise HostileFile(
            f"{path}: a zip of far too many files", hint="unpack it, and give the recording in it"
        )
    file.seek(0)


def _recordings(members: list[Member], is_recording: IsRecording) -> list[Member]:
    heads = [(m, m.head().text) for m in members[:MOST_LOOKED_INTO]]
    found = [m for m, head in heads if is_recording("unnamed", head)]
    # nothing that shows what it is: then a name will do, or what a log says later
    found = found or [m for m, head in heads if is_recording(m.name, head)]
    return found or [
        m
        for m, head in heads[:_MOST_LOOKED_DEEPER]
        if may_be_a_log(head) and is_recording("unnamed", m.head(_DEEPER_BYTES).text)
    ]


def _chosen(path: Path, members: list[Member], is_recording: IsRecording) -> Member:
    found = _recordings(members, is_recording)
    if not found and len(members) == 1:
        head = members[0].head().text
        if is_archive(head) or (_known(members[0]) is None and head and b"\0" not in head):
            return members[0]  # its reader says what it is
    if len(found) == 1:
        return found[0]
    if not found:
        if members and (known := _known(members[0])) is not None:
            raise UnreadableFile(f"{path}, {members[0].name}: {known[0]}", hint=known[1])
        if any(member.name == _OFFICE for member in members):
            sheet = any(member.name.startswith("xl/") for member in members)
            raise UnreadableFile(
                f"{path}: a {'workbook (Excel)' if sheet else 'document (Office)'}, whatever its"
                " name, not a recording that Pinchpoint reads",
                hint="save its sheet as CSV, and give that" if sheet else _OF_OFFICE,
            )
        raise UnreadableFile(
            f"{path}: an archive without a recording that Pinchpoint reads (its files: "
            f"{_named(members) or 'none'})",
            hint="unpack it, and give one of them; pinchpoint formats lists what is read",
        )
    _must_be_all(path, members)
    raise UnreadableFile(
        f"{path}: an archive with {len(found)} recordings ({_named(found)})",
        hint="all of them: pinchpoint diagnose FILE; ranks of a job: pinchpoint ranks FILE; or "
        "unpack it, and give one",
    )


_OFFICE = "[Content_Types].xml"  # of every file that Office packs
_OF_OFFICE = "give the recording or the log that it is about"


def _known(member: Member) -> tuple[str, str] | None:
    """What the first file is, and the next step, where it is known though it is no recording."""
    head = member.head().text
    return unmistakable(Path(member.name), head) or guess(head)


def _is_of_the_user(name: str) -> bool:
    return "__MACOSX/" not in name and not name.rpartition("/")[2].startswith(".")


def _named(members: list[Member]) -> str:
    more = f" and {len(members) - _SHOWN:,} more" if len(members) > _SHOWN else ""
    return ", ".join(m.name for m in members[:_SHOWN]) + more


def _inner(member: str) -> PurePosixPath:
    """A name, which importers look at; never a way out of the folder."""
    parts = member.replace("\\", "/").replace("\0", "").split("/")
    kept = [p[-_LONGEST_NAME:] for p in parts if p not in ("", ".", "..") and ":" not in p]
    return PurePosixPath(*kept) if kept else PurePosixPath("recording")


def _extract(members: list[Member], to: Path, budget: Budget, *, flat: bool = False) -> Path:
    """Take files out; the place of the last one."""
    place = to
    for member in members:
        inner = _inner(member.name)
        place = to / (inner.name if flat else inner)
        place.parent.mkdir(parents=True, exist_ok=True)
        with member.opened() as source:
            budget.copy(source, place, "unzip FILE, or tar -xf FILE")
    return place


__all__ = ["ZIP_MAGIC", "folder_of", "is_archive", "must_be_unpacked", "plain_file"]
