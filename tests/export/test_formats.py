"""SARIF, CSV, and the command that writes them."""

import csv
import io
from pathlib import Path

import msgspec
import pytest

from pinchpoint.cli import main
from pinchpoint.diagnosis.finding import Location
from pinchpoint.export.sarif import sarif
from pinchpoint.export.tabular import csv_tables, csv_text
from pinchpoint.importers import load
from report_sample import full_report, hostile_report

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


def test_our_reader_takes_the_chrome_file_back(tmp_path):
    out = tmp_path / "again.json"
    assert main(["export", str(DEMO), "--to", "chrome", "-o", str(out)]) == 0
    assert len(load(out).host_ops) > 0


@pytest.mark.parametrize("report", [full_report, hostile_report])
def test_sarif_has_what_its_version_requires(report):
    document = msgspec.json.decode(sarif(report(), "1.2"))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "Pinchpoint"
    for result in run["results"]:
        assert result["message"]["text"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        for location in result.get("locations", ()):
            assert location["physicalLocation"]["artifactLocation"]["uri"].isascii()


def test_sarif_points_to_the_source_line():
    result = msgspec.json.decode(sarif(full_report(), "1.2"))["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "train.py"},
        "region": {"startLine": 41},
    }


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a b.py", "a%20b.py"),
        ("/srv/x.py", "file:///srv/x.py"),
        ("C:\\x\\y.py", "file:///C:/x/y.py"),
        ("<string>", "train.json.gz"),  # no line is known: the recording
    ],
)
def test_sarif_addresses(file, uri):
    finding = msgspec.structs.replace(full_report().findings[0], location=Location(file=file))
    result = msgspec.json.decode(sarif(full_report(findings=(finding,)), "1.2"))["runs"][0][
        "results"
    ][0]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": uri}}


def test_sarif_has_a_location_for_every_finding():
    results = msgspec.json.decode(sarif(full_report(), "1.2"))["runs"][0]["results"]
    assert len(results) == 3
    assert all(result["locations"][0]["physicalLocation"] for result in results)
    operator = results[1]["locations"][0]["logicalLocations"]
    assert operator == [{"fullyQualifiedName": "aten::copy_"}]


def test_csv_has_unrounded_values():
    rows = list(csv.reader(io.StringIO(csv_tables(full_report())["kernels"])))
    assert rows[0] == ["name", "calls", "time (ns)", "share (ratio)", "bytes"]
    assert rows[1] == ["sgemm_64x64<float, true>(Params)", "38", "7100000", "0.3184", ""]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "' =1"),
        ("a=1", "a=1"),
        ("a\x1b[2J\r\nb\u202e", "a\ufffd[2J  b\ufffd"),
    ],
)
def test_csv_runs_nothing_in_a_spreadsheet_and_steers_no_terminal(name, cell):
    assert list(csv.reader(io.StringIO(csv_text([name], [(name, -1)])))) == [[cell], [cell, "-1"]]


@pytest.mark.parametrize("format_", ["speedscope", "collapsed", "sarif", "csv"])
def test_export_writes_what_it_says(format_, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["export", str(DEMO), "--to", format_, "-o", str(out)]) == 0
    written = [line.removeprefix("wrote ") for line in capsys.readouterr().err.splitlines()]
    assert written
    assert all(Path(file).stat().st_size for file in written)


def test_a_folder_that_is_a_file_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["export", str(DEMO), "--to", "csv", "-o", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_disk_that_fills_up_keeps_the_old_report(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    (tmp_path / "out").write_text("old")
    monkeypatch.setattr(Path, "write_bytes", full)
    words = ["export", str(DEMO), "--to", "sarif", "-o", str(tmp_path / "out"), "--force"]
    assert main(words) == 2
    assert "cannot be written (No space left on device)" in capsys.readouterr().err
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
