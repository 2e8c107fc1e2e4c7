import sys

import pytest

from pinchpoint.cli import output
from pinchpoint.cli.output import reading


@pytest.fixture
def large(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "LARGE_FILE_BYTES", 10)
    path = tmp_path / "large [red].json"
    path.write_bytes(bytes(20))
    return path


def test_logs_see_no_bar(large, capsys):
    with reading(large) as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def test_people_see_a_bar_on_standard_error(large, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with reading(large) as report:
        report(5, 20)
        report(20, 20)
    out, err = capsys.readouterr()
    assert out == ""
    assert "large [red].json" in err


def test_small_files_are_read_before_a_bar_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with reading(tmp_path / "none.json") as report:
        assert report is None
