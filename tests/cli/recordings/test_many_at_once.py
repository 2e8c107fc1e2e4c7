"""Folders and archives of recordings, and windows of one: what diagnose answers."""

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from builders import TraceBuilder
from kineto_documents import document, op
from pinchpoint.cli import main
from pinchpoint.cli.recordings._window import Window
from pinchpoint.errors import UsageError

RANKS = Path(__file__).parents[2] / "data" / "ranks"
BOTH = [RANKS / f"uneven.rank{rank}.json.gz" for rank in (0, 1)]
TRACE = document(*(op("aten::mm", at, 50) for at in range(0, 1000, 100)))


def diagnosed(capsys, *arguments):
    code = main(["diagnose", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def packed(folder, files):
    path = folder / "job.tar.gz"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in files:
            archive.add(file, f"run/{file.name}")
    path.write_bytes(gzip.compress(buffer.getvalue()))
    return path


def test_an_archive_of_ranks_is_their_job(capsys, tmp_path):
    path = packed(tmp_path, BOTH)
    code, found, _ = diagnosed(capsys, path)
    assert code == 0
    assert found["job"]["schema"] == "pinchpoint.ranks/1"
    assert "pinchpoint-" not in json.dumps(found)  # the temporary folder
    assert f"{path}/run/uneven.rank0.json.gz" in json.dumps(found)


def test_so_does_ranks(capsys, tmp_path):
    assert main(["ranks", str(packed(tmp_path, BOTH))]) == 0
    assert "Rank 1 holds up the others" in capsys.readouterr().out


def test_of_a_folder_every_recording_is_diagnosed_and_ranks_together(capsys, tmp_path):
    for job in ("a", "b"):
        (tmp_path / job).mkdir()
        for file in BOTH:
            shutil.copy(file, tmp_path / job / file.name.replace("uneven", job))
    (tmp_path / "alone.json").write_text(TRACE)
    code, found, err = diagnosed(capsys, tmp_path)
    assert (code, err) == (0, "")
    assert len(found["jobs"]) == 2
    assert [report["source"]["path"] for report in found["reports"]] == [
        str(tmp_path / "alone.json")
    ]


def test_one_bad_file_of_a_folder_is_said_and_stops_nothing(capsys, tmp_path):
    (tmp_path / "good.json").write_text(TRACE)
    (tmp_path / "other.json").write_text(TRACE)
    (tmp_path / "zbad.json").write_text('{"traceEvents": []}')
    code, found, err = diagnosed(capsys, tmp_path)
    assert code == 2
    assert len(found["reports"]) == 2
    assert "zbad.json" in err


def test_files_of_a_folder_with_the_same_wrong_are_one_line(capsys, tmp_path):
    (tmp_path / "good.json").write_text(TRACE)
    for number in range(5):
        (tmp_path / f"settings{number}.json").write_text(f'{{"key{number}": 1}}')
    code, found, err = diagnosed(capsys, tmp_path)
    assert (code, found["schema"]) == (2, "pinchpoint.report/1")
    assert err.count("error:") == 1
    assert "settings0.json: JSON without a list of traceEvents" in err
    assert "; the same of settings1.json, settings2.json, settings3.json and 1 more" in err


def test_a_folder_of_one_recording_is_that_recording(capsys, tmp_path):
    (tmp_path / "t.json").write_text(TRACE)
    code, found, _ = diagnosed(capsys, tmp_path)
    assert (code, found["schema"]) == (0, "pinchpoint.report/1")


def three_steps():
    built = TraceBuilder()
    for number, at in enumerate((0, 1000, 2000)):
        built.step(number, at, 900)
        built.op("aten::mm", at + 10, 100)
        built.launch(
            at=at + 20, takes=5, kernel="gemm", runs_at=at + 850, for_ns=100 * (number + 1)
        )
    return built.trace()


@pytest.mark.parametrize(
    ("part", "kernels"),
    [
        pytest.param(Window(), [100, 200, 300], id="everything"),
        pytest.param(Window(begin="1000ns"), [200, 300], id="from"),
        pytest.param(Window(end="0.001ms"), [100], id="to"),
        pytest.param(Window(begin="0.5us", end="1500ns"), [200], id="both"),
        pytest.param(Window(step=1), [200], id="a step: what it launched, wherever it ran"),
    ],
)
def test_a_window_keeps_what_was_launched_in_it(part, kernels):
    trace = part.cut(three_steps())
    assert trace.device_ops["duration_ns"].tolist() == kernels
    calls = trace.device_ops["api_call"]
    assert trace.device_ops.known("api_call").all()
    assert [trace.api_calls["correlation"][c] for c in calls] == list(
        trace.device_ops["correlation"]
    )


def test_host_rows_are_cut_at_the_ends():
    trace = Window(begin="500ns", end="1050ns").cut(three_steps())
    assert trace.host_ops["start_ns"].tolist() == [500, 1000, 1010]
    assert trace.host_ops.end_ns.tolist() == [900, 1050, 1050]


@pytest.mark.parametrize(
    "part",
    [
        Window(begin="5s"),
        Window(begin="2us", end="1us"),
        Window(begin="soon"),
        Window(step=7),
        Window(step=1, begin="1s"),
    ],
)
def test_what_is_no_window_is_one_clear_error(part):
    with pytest.raises(UsageError) as caught:
        part.cut(three_steps())
    assert caught.value.hint


def test_the_command_takes_a_window(capsys):
    assert diagnosed(capsys, BOTH[0])[1]["steps"]["count"] > 1
    assert diagnosed(capsys, BOTH[0], "--step", "1")[1]["steps"]["count"] == 1
    assert main(["diagnose", str(BOTH[0]), "--from", "9999s"]) == 2
