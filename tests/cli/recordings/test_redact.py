"""``--redact``: what is private of a run is in no answer that is passed on, on every way out."""

import json
from pathlib import Path

import pytest

from importers.memory_snapshot import snapshots
from kineto_documents import document, event, launched, op
from pinchpoint.cli import main
from pinchpoint.report.redact import command_short, short
from pinchpoint.run_folder.layout import SCHEMA

FOLDER = "s3cret place/of alice"  # a space is where patterns end
PRIVATE = ("s3cret", "of alice", "hunter2", "buildhost7", "shapeword", "--api-key")
EXPORTS = ("chrome", "perfetto", "speedscope", "collapsed", "csv", "sarif", "otlp", "parquet")


@pytest.fixture
def run(tmp_path):
    """A run folder below a private folder, whose program, host and arguments are private too."""
    home = tmp_path / FOLDER
    traces = home / "run" / "traces"
    traces.mkdir(parents=True)
    (home / "run" / "processes").mkdir()
    frame = f"/home/{FOLDER}/train.py(12): step"
    command = "python /home/s3cret/train.py --api-key hunter2"
    events = []
    for step in range(4):
        at = 1000 * step
        events += [
            event(f"ProfilerStep#{step}", "user_annotation", at, 900),
            event(frame, "python_function", at + 5, 800, Python_id=step),
            op("aten::mm", at + 10, 100, Concrete_Inputs=["shapeword"], Input_Dims=[[2, 3]]),
            *launched("k /s3cret/kernel.cu", at + 20, 8, 300, step + 1),
        ]
    events.append({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": command}})
    (traces / "t.json").write_text(document(*events, baseTimeNanoseconds=10**18))
    documents = {
        "run.json": {"schema": SCHEMA, "command": command.split(), "working_directory": str(home)},
        "processes/rank0.json": {"rank": 0, "recordings": [{"file": "t.json"}]},
        "env.json": {
            "host": {"hostname": "buildhost7"},
            "variables": {"values": {"TOKEN": "hunter2", "OMP_NUM_THREADS": "1"}},
        },
    }
    for name, content in documents.items():
        (home / "run" / name).write_text(json.dumps(content))
    return home / "run"


def private_in(text):
    """What is there, with what stands around it."""
    return [text[max(0, text.index(word) - 60) :][:120] for word in PRIVATE if word in text]


@pytest.mark.parametrize("place", ["", "traces/t.json"], ids=["run folder", "file"])
@pytest.mark.parametrize("how", [["--json"], ["--verbose"], ["--markdown"]])
def test_answers_on_standard_output(run, capsys, place, how):
    file = run / place if place else run
    assert main(["diagnose", str(file), *how]) == 0
    assert private_in(capsys.readouterr().out)  # there is something to leave out
    assert main(["diagnose", str(file), *how, "--redact"]) == 0
    said = capsys.readouterr().out
    assert private_in(said) == []
    assert file.name in said


SNAPSHOT = Path(__file__).parents[2] / "data/memory/eval_nograd.pickle.gz"
# Of each command, its words; {run} is the run folder, {ranks} one of two ranks, {snap} a snapshot.
OTHERS = {
    "compare": ["compare", "{run}", "{run}"],
    "sql names": ["sql", "{run}", "SELECT * FROM names"],
    "sql host": ["sql", "{run}", "SELECT * FROM host_ops"],
    "memory": ["memory", "{snap}"],
    "memory compare": ["memory", "{snap}", "--compare", "{snap}"],
    "ranks": ["ranks", "{ranks}"],
    "causal": ["causal", "{run}"],
    "causal of a job": ["causal", "{ranks}"],
    "kernels": ["kernels", "{run}"],
    "roofline": ["roofline", "{run}"],
    "show": ["show", "{run}"],
    "show one": ["show", "{run}", "1"],
}
MORE = {"compare": [["--markdown"]], "sql": [["--csv"]], "show": []}  # instead of --verbose
PAGES = ("compare", "memory", "memory compare", "ranks", "causal", "causal of a job")


@pytest.fixture
def places(run, tmp_path):
    """The run, two ranks and a snapshot of memory, all below the private folder."""
    ranks = run.parent / "ranks"
    ranks.mkdir()
    for rank in (0, 1):
        text = (run / "traces/t.json").read_text()
        more = json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}})[1:-1]
        (ranks / f"rank{rank}.json").write_text("{" + more + ", " + text[1:])
    snapshot = run.parent / "m.pickle"
    known = json.dumps(snapshots.small())
    snapshots.write(snapshot, json.loads(known.replace("model.py", f"/home/{FOLDER}/model.py")))
    return {"run": run, "ranks": ranks, "snap": snapshot}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_answer(name, places, tmp_path, capsys):
    words = [word.format(**places) for word in OTHERS[name]]
    page = tmp_path / "page.html"
    hows = [[], ["--json"], *MORE.get(words[0], [["--verbose"]])]
    for how in [*hows, ["--html", str(page)]] if name in PAGES else hows:
        assert main([*words, *how, "--redact"]) == 0
        assert private_in(capsys.readouterr().out) == []
    if name in PAGES:
        assert private_in(page.read_text()) == []
    main([*words, "--json"])
    assert private_in(capsys.readouterr().out) or words[0] in ("show", "kernels")


def test_tables_of_a_job_cannot_be_redacted(places, tmp_path, capsys):
    words = ["ranks", str(places["ranks"]), "--redact", "--parquet", str(tmp_path / "t")]
    assert main(words) == 2
    assert "--redact" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_the_json_keeps_its_form_and_figures(run, capsys):
    found = []
    for more in ([], ["--redact"]):
        assert main(["diagnose", str(run), "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    whole, shared = found
    assert list(whole) == list(shared)
    assert whole["breakdown"] == shared["breakdown"]
    assert [f["id"] for f in whole["findings"]] == [f["id"] for f in shared["findings"]]
    assert shared["source"]["path"] == "run"


@pytest.mark.parametrize("words", [["report", "-o"], ["diagnose", "--html"]])
def test_pages(run, tmp_path, words):
    command, option = words
    out = tmp_path / "out.html"
    assert main([command, str(run), option, str(out), "--redact"]) == 0
    text = out.read_text()
    assert private_in(text) == []
    assert "train.py" in text or command == "diagnose"


@pytest.mark.parametrize("to", EXPORTS)
def test_exports(run, tmp_path, to):
    if to == "parquet":
        pytest.importorskip("duckdb")
    out = tmp_path / "out"
    assert main(["export", str(run), "--to", to, "-o", str(out), "--redact"]) == 0
    files = [out] if out.is_file() else sorted(out.iterdir())
    assert files
    for file in files:
        assert private_in(file.read_bytes().decode("utf-8", "replace")) == []


def test_several_ranks(tmp_path, capsys):
    data = Path(__file__).parents[2] / "data/ranks"
    home = tmp_path / "s3cret job/ranks"
    home.mkdir(parents=True)
    for rank in range(2):
        name = f"even.rank{rank}.json.gz"
        (home / name).write_bytes((data / name).read_bytes())
    for words in (["diagnose", "--json"], ["report", "-o", str(tmp_path / "job.html")]):
        assert main([words[0], str(home), *words[1:], "--redact"]) == 0
    assert private_in(capsys.readouterr().out) == []
    assert private_in((tmp_path / "job.html").read_text()) == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/me/my work/train.py(12): step", "train.py(12): step"),
        ("C:\\Users\\me\\a.py(3): f", "a.py(3): f"),
        ("forward (/home/me/a.py:41), Block", "forward (a.py:41), Block"),
        ("forward (/home/my work/a.py:41), Block", "forward (a.py:41), Block"),
        ("see ~/x/run.json, twice", "see run.json, twice"),
        ("s3://bucket/run/x.json", "x.json"),
        ("--out=/home/me/x", "--out=x"),
        ("12 GB/s of 3 us/step, read / write", "12 GB/s of 3 us/step, read / write"),
        ("at::native::foo<(int)4>(T*)", "at::native::foo<(int)4>(T*)"),
    ],
)
def test_folders_go_and_signs_of_division_stay(text, left):
    assert short(text) == left


def test_a_process_is_called_by_its_program_alone():
    assert command_short("python /a/train.py --key=hunter2 -v") == "python train.py"
    assert command_short("ncclDevKernel --x") == "ncclDevKernel --x"
