"""Layers of TensorRT engines, as ``trtexec --exportProfile`` sums them."""

import json

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load

LAYERS = [
    {"count": 330},
    {"name": "conv1", "timeMs": 0.5, "averageMs": 0.0015, "medianMs": 0.0014, "percentage": 20},
    {"name": "fc", "timeMs": 2.0, "averageMs": 0.006, "medianMs": 0.005, "percentage": 80},
    {"name": "shape", "timeMs": 0, "averageMs": 0, "medianMs": 0, "percentage": 0},
]


def kept(folder, content):
    path = folder / "profile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_layers_with_most_time_first(tmp_path, capsys):
    (table,) = load(kept(tmp_path, LAYERS)).summaries
    assert table.columns == (
        "layer",
        "runs",
        "time (ms)",
        "average (ms)",
        "median (ms)",
        "share (%)",
    )
    assert table.rows[0] == ("fc", "330", "2", "0.006", "0.005", "80")
    assert [row[0] for row in table.rows] == ["fc", "conv1", "shape"]
    assert main(["diagnose", str(tmp_path / "profile.json")]) == 0
    assert "TensorRT layers" in capsys.readouterr().out


def test_older_ones_have_no_median(tmp_path):
    old = [{k: v for k, v in each.items() if k != "medianMs"} for each in LAYERS]
    (table,) = load(kept(tmp_path, old)).summaries
    assert "median (ms)" not in table.columns


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (LAYERS[:1] + LAYERS[3:], "no layer took time"),
        (json.dumps(LAYERS)[:-9], "cut off or broken"),
        ([{"count": 1}, {"name": "a", "timeMs": "soon", "averageMs": 1}], "no layer took time"),
    ],
)
def test_what_says_nothing_is_refused(tmp_path, content, said):
    with pytest.raises(UnreadableFile, match=said):
        load(kept(tmp_path, content))
