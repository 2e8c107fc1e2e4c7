"""Files that are no recordings end in one clear line and a next step, whatever is in them."""

import gzip
import os

import pytest

from pinchpoint.cli import main as cli

BAD = {
    "empty.json": b"",
    "text.json": b"this is not a trace\n" * 10,
    "junk.bin": bytes(range(256)) * 40,
    "page.json": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
    "one_byte.json.gz": b"\x1f",
    "two_bytes.json.gz": b"\x1f\x8b",
    "cut.json.gz": gzip.compress(b'{"traceEvents": []}')[:12],
    "gzip_of_nothing.json.gz": gzip.compress(b""),
    "not_gzip.json.gz": b"\x1f\x8b\x08\x00" + b"garbage" * 20,
    "zeros.json.gz": gzip.compress(bytes(30_000_000)),
    "number.json": b"42",
    "other.json": b'{"name": "package", "version": "1.0.0", "dependencies": {}}',
    "other_list.json": b'[1, 2, 3, "four"]',
    "nested.json": b'{"traceEvents": ' + b"[" * 200_000,
    "nested_args.json": b'{"traceEvents": [{"ph": "X", "args": ' + b'{"a":' * 200_000,
    "nul.json": b'{"traceEvents": [\x00\x00\x00',
    "surrogate.json": b'{"traceEvents": [{"name": "\\ud800", "ph": "X", "ts": "x"}]}',
}


def assert_refused(words, capsys):
    assert cli(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    error, hint = err.splitlines()
    assert error.startswith("error: ")
    assert words[-1] in error
    assert hint.startswith(" next: ")
    assert len(hint) > len(" next: ")


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_recording(name, tmp_path, capsys):
    path = tmp_path / name
    path.write_bytes(BAD[name])
    assert_refused(["diagnose", str(path)], capsys)


def test_a_folder(tmp_path, capsys):
    assert_refused(["diagnose", str(tmp_path)], capsys)


def test_a_missing_file(tmp_path, capsys):
    assert_refused(["diagnose", str(tmp_path / "none.json")], capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path, capsys):
    path = tmp_path / "secret.json"
    path.write_bytes(b"{}")
    path.chmod(0)
    assert_refused(["diagnose", str(path)], capsys)


def test_a_device_that_never_ends(capsys):
    assert_refused(["diagnose", "/dev/zero"], capsys)


def test_a_name_that_is_no_text(tmp_path, capsys):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m.json")
    assert cli(["diagnose", path]) == 2
    err = capsys.readouterr().err
    assert "no such file" in err
    assert "\x1b" not in err
