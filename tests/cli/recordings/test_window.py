"""What is judged of a recording with more events than a diagnosis is made of."""

import json
import pickle

from kineto_documents import document, launched, step, written
from pinchpoint.cli import main as cli
from pinchpoint.cli.recordings import _window

STEPS = 20


def test_the_middle_of_a_recording_with_too_many_events_is_judged_and_said(
    tmp_path, monkeypatch, capsys
):
    events = []
    for i in range(STEPS):
        events += [step(i, i * 1000, 900), *launched("gemm", i * 1000 + 50, i * 1000 + 60, 800, i)]
    path = str(written(tmp_path, document(*events)))
    monkeypatch.setattr(_window, "MOST_EVENTS", 3 * STEPS // 2)
    assert cli(["diagnose", path, "--json"]) == 0
    out, err = capsys.readouterr()
    part = json.loads(out)
    assert (part["steps"]["count"], part["steps"]["numbers"][0]) == (9, 6)
    (fact,) = (one for one in part["health"]["facts"] if one["id"] == "part-judged")
    assert fact["detail"] in err
    assert "60 events: judged is its middle, from 5ms to 14ms of 20ms" in fact["detail"]
    assert cli(["diagnose", path, "--json", "--from", "0ms"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"]["count"] == STEPS


def test_where_memory_is_short_a_smaller_middle_is_judged(tmp_path, monkeypatch, capsys):
    events = []
    for i in range(STEPS):
        events += [step(i, i * 1000, 900), *launched("gemm", i * 1000 + 50, i * 1000 + 60, 800, i)]
    path = str(written(tmp_path, document(*events)))
    monkeypatch.setattr(_window, "FEWEST_EVENTS", 15)
    monkeypatch.setattr(_window, "may_have", lambda bytes_: bytes_ <= 40 * 600)
    assert cli(["diagnose", path, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "60 events: judged is its middle" in err
    assert json.loads(out)["steps"]["count"] == STEPS // 2 - 1


def test_a_memory_snapshot_is_judged_whole_and_says_so(tmp_path, capsys):
    path = tmp_path / "snapshot.pickle"
    event = {"action": "alloc", "addr": 512, "size": 512, "stream": 0, "frames": []}
    trace = [event | {"time_us": 1_000_000}, event | {"addr": 4096, "time_us": 1_002_500}]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    assert cli(["diagnose", str(path), "--from", "1ms", "--to", "2ms"]) == 2
    said = capsys.readouterr().err
    assert "whose history lasts 2.500ms, and is judged whole" in said
    assert "without --from and --to; pinchpoint memory" in said
