"""The raw memory timeline: curves and categories at the peak are those of the file."""

import gzip
import json

import pytest

from pinchpoint.analysis.memory.history import histories
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.open import format_of

PARAMETER, STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, DETAIL, UNKNOWN = range(8)
BEFORE, CREATE, VERSION, DESTROY = 1, 2, 3, 4
AT = 1_700_000_000_000_000_000
ROWS = [
    [-1, BEFORE, 1000, PARAMETER],
    [AT + 1000, CREATE, 4096, UNKNOWN],
    [AT + 2000, VERSION, -4096, UNKNOWN],
    [AT + 2000, VERSION, 4096, GRADIENT],
    [AT + 2500, CREATE, 8192, ACTIVATION],  # the peak
    [AT + 3000, DESTROY, -8192, ACTIVATION],
    [AT + 4000, DESTROY, -4096, GRADIENT],
]


def written(folder, rows, name="memory.raw.json.gz"):
    path = folder / name
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    return path


def test_the_peak_and_what_it_is_made_of(tmp_path):
    (history,) = histories(load(written(tmp_path, ROWS)))
    peak = history.replay.peak("requested")
    assert peak.bytes == 1000 + 4096 + 8192
    alive = (history.blocks.birth <= peak.event) & (history.blocks.death > peak.event)
    held = {
        MemoryCategory(c): int(
            history.blocks.requested[alive & (history.owners.category == c)].sum()
        )
        for c in set(history.owners.category[alive].tolist())
    }
    assert held == {
        MemoryCategory.PARAMETER: 1000,
        MemoryCategory.ACTIVATION: 8192,
        MemoryCategory.GRADIENT: 4096,
    }


def test_the_command_says_it_and_nothing_of_what_the_driver_gave(tmp_path, capsys):
    assert main(["memory", str(written(tmp_path, ROWS))]) == 0
    said = capsys.readouterr().out
    assert "activations" in said
    assert "Reserved" not in said


def test_a_free_that_nothing_was_made_for_is_said(tmp_path):
    trace = load(written(tmp_path, [*ROWS, [AT + 5000, DESTROY, -77, INPUT]]))
    assert [trace.names[n] for n in trace.health["fact"]] == ["pairs-unmatched"]


@pytest.mark.parametrize("rows", [[[AT, CREATE, 0, 1]], [[1, 2, 3, 4], ["x"]]])
def test_what_is_none_is_one_clear_error(tmp_path, rows):
    with pytest.raises(UnreadableFile) as caught:
        load(written(tmp_path, rows))
    assert caught.value.hint


def test_sums_over_time_are_another_file(tmp_path, capsys):
    path = written(tmp_path, [[1.5, 2.5], [[0, 1, 2], [0, 3, 4]]], "memory.json.gz")
    assert format_of(path) is None
    assert main(["diagnose", str(path)]) == 2
    assert "raw.json.gz" in capsys.readouterr().err
