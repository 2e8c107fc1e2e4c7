"""A zip with one recording is read as that recording; everything else is refused in one line."""

import gzip
import zipfile
import zlib

import pytest

from kineto_documents import document, op
from pinchpoint.cli import main
from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.files import archives, packed
from pinchpoint.importers.kineto import read_arguments
from pinchpoint.importers.open import format_of

TRACE = document(op("aten::mm", 0, 100, Input_Dims=[[2, 3]])).encode()


def zipped(folder, members, how=zipfile.ZIP_DEFLATED, name="trace.zip"):
    path = folder / name
    with zipfile.ZipFile(path, "w", how) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return path


def refused(path, kind=UnreadableFile):
    with pytest.raises(kind) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert "pinchpoint-" not in caught.value.message  # the temporary folder
    return caught.value


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"trace.json": TRACE}, id="one"),
        pytest.param({"a/b/rank0.json.gz": gzip.compress(TRACE)}, id="gzipped, in a folder"),
        pytest.param({"no-suffix": TRACE}, id="known by what it holds"),
        pytest.param({"README.md": b"x", "a/": b"", "trace.json": TRACE}, id="beside other files"),
        pytest.param({"facts.json": b'{"a": 1}', "t.json": TRACE}, id="beside other JSON"),
        pytest.param({"__MACOSX/._t.json": TRACE, "t.json": TRACE}, id="made on a Mac"),
        pytest.param({"../../up.json": TRACE}, id="a name that leads out"),
        pytest.param({"/" + "n" * 300 + ".json": TRACE}, id="a long name"),
    ],
)
def test_the_one_recording_is_read(tmp_path, members):
    path = zipped(tmp_path, members)
    trace = load(path)
    assert trace.names[int(trace.host_ops["name"][0])] == "aten::mm"
    assert trace.source.path == str(path)
    assert read_arguments(trace, [0]) == [{"Input Dims": [[2, 3]]}]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_packings(tmp_path, how):
    assert len(load(zipped(tmp_path, {"t.json": TRACE}, how)).host_ops) == 1


def test_several_are_named(tmp_path):
    error = refused(zipped(tmp_path, {f"rank{i}.json": TRACE for i in range(5)}))
    assert "5 recordings (rank0.json, rank1.json, rank2.json and 2 more)" in error.message
    assert "pinchpoint ranks" in error.hint


@pytest.mark.parametrize("members", [{"a.md": b"x"}, {"in.zip": b"PK\x03\x04"}, {"e.json": b""}])
def test_none_is_said(tmp_path, members, capsys):
    path = zipped(tmp_path, members | {"b.md": b"y"})
    assert "without a recording" in refused(path).message
    assert main(["diagnose", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert format_of(path) is None


def test_the_only_text_of_an_archive_is_read_or_called_what_it_is(tmp_path):
    assert "b.md: text without one figure" in refused(zipped(tmp_path, {"b.md": b"y"})).message
    log = b"".join(b"step %d took 1.%d ms\n" % (n, n) for n in range(9))
    (table, *_) = load(zipped(tmp_path, {"own.log": log})).summaries
    assert table.rows[0][:3] == ("step # took", "ms", "9")


def test_what_is_wrong_with_the_recording_is_said_of_the_zip(tmp_path):
    error = refused(zipped(tmp_path, {"t.json": '{"traceEvents": []}'}))
    assert "trace.zip, t.json: a list of events without" in error.message


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw[: len(raw) // 2], id="cut off"),
        pytest.param(lambda raw: raw[:60] + b"\x00" * 40 + raw[100:], id="overwritten"),
        pytest.param(lambda raw: raw[:4] + b"\xff" * (len(raw) - 4), id="nothing but its start"),
    ],
)
def test_damage_is_one_clear_error(tmp_path, damage):
    path = zipped(tmp_path, {"t.json": TRACE * 3})
    path.write_bytes(damage(path.read_bytes()))
    refused(path)


def test_a_password_is_said(tmp_path):
    path = zipped(tmp_path, {"t.json": TRACE})
    raw = bytearray(path.read_bytes())
    for start in (raw.find(b"PK\x03\x04") + 6, raw.find(b"PK\x01\x02") + 8):
        raw[start] |= 1
    path.write_bytes(raw)
    assert "password" in refused(path).message


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    refused(zipped(tmp_path, {"t.json": TRACE + b" " * (20 << 20)}), HostileFile)


def test_a_lie_about_sizes_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    path = zipped(tmp_path, {"t.json": TRACE + b" " * (20 << 20)})
    said = zlib.compress(b"")  # any four bytes: what the directory says it packs to
    raw = path.read_bytes().replace(
        zipfile.ZipFile(path).infolist()[0].compress_size.to_bytes(4, "little"), said[:4]
    )
    path.write_bytes(raw)
    refused(path)


def test_of_more_recordings_than_are_looked_into_nothing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(archives, "MOST_LOOKED_INTO", 2)
    path = zipped(tmp_path, {f"{i}.json": TRACE for i in range(3)})
    assert main(["diagnose", str(path)]) == 2
    assert "an archive of 3 files" in capsys.readouterr().err


def test_a_directory_without_end_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_DIRECTORY_BYTES", 1000)
    refused(
        zipped(tmp_path, {f"{i}.txt": b"" for i in range(100)} | {"t.json": TRACE}), HostileFile
    )
