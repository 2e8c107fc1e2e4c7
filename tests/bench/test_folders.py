import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pinchpoint.bench.folders import new_id, session_state, start_session, write_atomic, write_json
from pinchpoint.errors import UnreadableFile, UsageError


def test_a_session_from_start_to_end(tmp_path):
    session = start_session("ab", {"command": "x"}, tmp_path / "s")
    assert session_state(tmp_path / "s")["status"] == "running"
    session.finish(verdict="pass")
    state = session_state(tmp_path / "s")
    assert (state["status"], state["verdict"], state["asked"]) == (
        "complete",
        "pass",
        {"command": "x"},
    )


def test_a_killed_session_says_that_it_was_cut(tmp_path):
    code = (
        "import sys, time; from pathlib import Path;"
        "from pinchpoint.bench.folders import start_session;"
        "start_session('ab', {}, Path(sys.argv[1])); print('on', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    with process:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    state = session_state(tmp_path / "s")
    assert state["status"] == "cut"
    assert "process ended" in state["why"]


def test_a_session_file_cut_in_the_middle(tmp_path):
    (tmp_path / "session.json").write_text('{"schema": "ben')
    assert session_state(tmp_path)["status"] == "cut"


def test_not_a_session(tmp_path):
    with pytest.raises(UnreadableFile, match=r"session\.json"):
        session_state(tmp_path)


def test_a_folder_that_holds_something_is_refused(tmp_path):
    start_session("ab", {}, tmp_path / "s")
    with pytest.raises(UsageError, match="not empty"):
        start_session("ab", {}, tmp_path / "s")


def test_sessions_started_at_once_do_not_mix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        folders = {s.folder for s in pool.map(lambda _: start_session("run", {}), range(24))}
    assert len(folders) == 24


def test_write_atomic_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    with pytest.raises(UsageError, match="cannot be written"):
        write_atomic(tmp_path / "missing" / "a", b"")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_ids_sort_by_time_and_differ():
    ids = [new_id() for _ in range(50)]
    assert len(set(ids)) == 50
    assert all(len(i) == 26 for i in ids)
    assert ids[0][:9] <= ids[-1][:9]


def test_what_is_made_unasked_is_none_of_gits_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with start_session("run", {}):
        assert (tmp_path / "pinchpoint-bench/.gitignore").read_text().endswith("\n*\n")
    with start_session("run", {}, tmp_path / "asked/here"):
        assert not (tmp_path / "asked/.gitignore").exists()
