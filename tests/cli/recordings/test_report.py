"""``pinchpoint report`` writes one file and says so."""

import shutil
from pathlib import Path

from analysis.memory.recordings import FOLDER
from pinchpoint.cli import main
from pinchpoint.importers import load
from pinchpoint.jobs.full_page import snapshot_beside

DEMO = Path(__file__).parents[3] / "src/pinchpoint/data/item_sync.json.gz"


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


def test_the_last_snapshot_of_the_rank_belongs_to_its_report(tmp_path):
    (tmp_path / "memory").mkdir()
    trace, said = load(DEMO), []
    assert snapshot_beside(tmp_path, trace, said.append) is None
    for name in ("rank00000of00002.h.1.end.pickle", "rank00001of00002.h.2.end.pickle"):
        shutil.copy(FOLDER / "oom.pickle.gz", tmp_path / "memory" / name)
    (tmp_path / "memory/rank00000of00002.h.1.out-of-memory.pickle").write_bytes(b"no pickle")
    found = snapshot_beside(tmp_path, trace, said.append)
    assert found is not None
    assert found.source.path.endswith("rank00000of00002.h.1.end.pickle")
    assert said[0].startswith("left out: ")
