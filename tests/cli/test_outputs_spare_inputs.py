"""What is written never takes the place of a recording, of what is read, or of a run folder."""

import json
import os
import shutil
from pathlib import Path

import pytest

from pinchpoint.cli.dispatch import main

SAMPLE = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"
WRITERS = {
    "report": ("report", "{file}", "-o", "{out}"),
    "diagnose": ("diagnose", "{file}", "--html", "{out}"),
    "chrome": ("export", "{file}", "--to", "chrome", "-o", "{out}"),
    "speedscope": ("export", "{file}", "--to", "speedscope", "-o", "{out}"),
    "collapsed": ("export", "{file}", "--to", "collapsed", "-o", "{out}"),
    "sarif": ("export", "{file}", "--to", "sarif", "-o", "{out}"),
    "otlp": ("export", "{file}", "--to", "otlp", "-o", "{out}"),
    "ranks": ("ranks", "{file}", "--html", "{out}"),
    "shard": ("ranks", "{file}", "--shard", "1/1", "-o", "{out}"),
    "roofline": ("roofline", "{file}", "--svg", "{out}"),
    "memory": ("memory", "{snapshot}", "--html", "{out}"),
    "demo": ("demo", "--html", "{out}"),
    "monitor": ("monitor", "--once", "--log", "{out}"),
    "prometheus": ("monitor", "--once", "--prometheus", "{out}"),
}
SNAPSHOT = Path(__file__).parents[1] / "data/memory/eval_nograd.pickle.gz"


@pytest.fixture
def recording(tmp_path):
    file = tmp_path / "z.json.gz"
    shutil.copyfile(SAMPLE, file)
    return file


def run(name, out, file=SAMPLE, *more):
    words = [w.format(file=file, out=out, snapshot=SNAPSHOT) for w in WRITERS[name]]
    return main([*words, *more])


def refused(capsys, what):
    said = capsys.readouterr().err
    assert what in said
    assert "Traceback" not in said
    assert "wrote" not in said


@pytest.mark.parametrize("name", WRITERS)
def test_no_command_replaces_a_recording_even_if_forced(name, recording, capsys):
    before = recording.read_bytes()
    assert run(name, recording, recording, "--force") == 2
    refused(capsys, "is not replaced")
    assert recording.read_bytes() == before


def symbolic(file, folder):
    (folder / "link.html").symlink_to(file)
    return folder / "link.html"


def hard(file, folder):
    os.link(file, folder / "hard.html")
    return folder / "hard.html"


def by_number(file, folder):
    return Path("/dev/fd", str(os.open(file, os.O_RDONLY)))


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs files by their numbers")
@pytest.mark.parametrize("other_name", [symbolic, hard, by_number])
def test_nor_what_is_read_under_another_name(other_name, recording, tmp_path, capsys):
    archive = tmp_path / "z.zip"  # no recording by its first bytes, but what is read
    shutil.make_archive(str(tmp_path / "z"), "zip", tmp_path, recording.name)
    before = archive.read_bytes()
    assert run("report", other_name(archive, tmp_path), archive, "--force") == 2
    refused(capsys, "what is read")
    assert archive.read_bytes() == before


def test_nor_a_document_of_a_run_folder(tmp_path, capsys):
    document = tmp_path / "run.json"
    document.write_text('{"schema":"pinchpoint.run/1"}')
    for name in ("report", "sarif", "chrome"):
        assert run(name, document, SAMPLE, "--force") == 2
        refused(capsys, "part of a run folder")
    assert main(["export", str(SAMPLE), "--to", "csv", "-o", str(tmp_path)]) == 2
    refused(capsys, "a run folder")
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_a_program_in_its_place_wants_force(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    assert run("report", script) == 2
    refused(capsys, "--force")
    assert script.read_text() == "import torch\n"
    assert run("report", script, SAMPLE, "--force") == 0
    assert script.read_text().lower().startswith("<!doctype html")


@pytest.mark.parametrize(
    "name", ["report", "diagnose", "chrome", "speedscope", "sarif", "otlp", "shard"]
)
def test_an_earlier_output_of_its_kind_is_replaced(name, tmp_path):
    out = tmp_path / "out"
    out.touch()  # as mktemp makes it
    assert run(name, out) == 0
    out.write_bytes(out.read_bytes() + b"\n")
    longer = out.stat().st_size
    assert run(name, out) == 0
    assert out.stat().st_size == longer - 1


def test_an_export_for_perfetto_is_still_a_recording_to_read(tmp_path, capsys):
    assert run("chrome", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out").read_text())["exporter"] == "pinchpoint"
    assert main(["diagnose", str(tmp_path / "out"), "--json"]) == 0


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_tables_are_replaced_by_tables_only(to, tmp_path, capsys):
    words = ["export", str(SAMPLE), "--to", to, "-o", str(tmp_path / "out")]
    assert main(words) == 0
    assert main(words) == 0
    for file in (tmp_path / "out").iterdir():
        file.write_bytes(SAMPLE.read_bytes())
    capsys.readouterr()
    assert main([*words, "--force"]) == 2
    refused(capsys, "a recording is there")
    assert {p.read_bytes() for p in (tmp_path / "out").iterdir()} == {SAMPLE.read_bytes()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("report", "<!doctype html>\n<title>My thesis</title>"),
        ("diagnose", "<!DOCTYPE html>\n<title>My thesis</title>"),
        ("collapsed", "main;work 12\n"),  # as any tool writes them
        ("sarif", '{"$schema":"https://json.schemastore.org/sarif-2.1.0.json","runs":[]}'),
        ("speedscope", '{"$schema":"https://www.speedscope.app/file-format-schema.json"}'),
        ("otlp", '{"resourceSpans":[]}'),
    ],
)
def test_what_another_program_wrote_in_our_format_wants_force(name, text, tmp_path, capsys):
    theirs = tmp_path / "theirs"
    theirs.write_text(text)
    assert run(name, theirs) == 2
    refused(capsys, "--force")
    assert theirs.read_text() == text
    assert run(name, theirs, SAMPLE, "--force") == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["compare", str(SAMPLE), str(SAMPLE), "--junit"], "<?xml version='1.0'?><project/>"),
        (["roofline", str(SAMPLE), "--svg"], "<svg xmlns='http://www.w3.org/2000/svg'/>"),
        (["monitor", "--once", "--prometheus"], "# HELP node_load1 1m load average.\n"),
    ],
)
def test_so_does_a_picture_a_report_of_tests_and_a_metric(words, text, tmp_path, capsys):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_text(text)
    assert main([*words, str(theirs)]) == 2
    refused(capsys, "--force")
    assert theirs.read_text() == text
    assert main([*words, str(ours)]) == 0
    assert main([*words, str(ours)]) == 0  # its own is replaced


def test_tables_of_another_program_want_force(tmp_path, capsys):
    duckdb = pytest.importorskip("duckdb")
    theirs = tmp_path / "steps.parquet"
    duckdb.sql("SELECT 1 AS mine").write_parquet(str(theirs))
    before = theirs.read_bytes()
    words = ["export", str(SAMPLE), "--to", "parquet", "-o", str(tmp_path)]
    assert main(words) == 2
    refused(capsys, "--force")
    assert theirs.read_bytes() == before


def test_nor_a_part_of_a_folder_of_bench(tmp_path, capsys):
    (tmp_path / "session.json").write_text('{"schema": "bench.session/1"}')
    result = tmp_path / "runs" / "000" / "metrics.json"
    result.parent.mkdir(parents=True)
    result.write_text('{"schema": "bench.run/1"}')
    assert run("report", result, SAMPLE, "--force") == 2
    refused(capsys, "a folder of pinchpoint bench")
    (tmp_path / "session.json").write_text('{"user": "of another program"}')
    assert run("report", result, SAMPLE, "--force") == 0


def test_tables_of_a_job_spare_those_of_another_program(tmp_path, capsys):
    duckdb = pytest.importorskip("duckdb")
    theirs = tmp_path / "steps-0.parquet"
    duckdb.sql("SELECT 1 AS mine").write_parquet(str(theirs))
    before = theirs.read_bytes()
    ranks = sorted((Path(__file__).parents[1] / "data/ranks").glob("even.*"))
    words = ["ranks", *map(str, ranks), "--parquet", str(tmp_path)]
    assert main(words) == 2
    refused(capsys, "--force")
    assert theirs.read_bytes() == before
    assert main([*words, "--force"]) == 0
    assert main(words) == 0  # its own are replaced
