"""``pinchpoint report`` writes one file and says so."""

from pathlib import Path

from pinchpoint.cli import main

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


def test_it_writes_one_file(tmp_path, capsys):
    out = tmp_path / "out.html"
    assert main(["report", str(DEMO), "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"wrote {out}")
    assert [p.name for p in tmp_path.iterdir()] == ["out.html"]
    assert out.read_text("utf-8").startswith("<!doctype html>")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    assert main(["report", str(DEMO), "-o", str(tmp_path / "no/such.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
