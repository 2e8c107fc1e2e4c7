"""Labelled recordings of two ranks: the right cause first, whatever the clocks say."""

import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pinchpoint.analysis.ranks.summary import RankSummary, pack, unpack
from pinchpoint.importers import load
from pinchpoint.importers.ranks.files import RankFile
from pinchpoint.jobs import diagnose_ranks, merge_parts
from pinchpoint.jobs.parts import write_part
from pinchpoint.jobs.rank_map import record_of
from pinchpoint.report.documents.rank_records import PartHeader, encode_record

pytestmark = pytest.mark.corpus

FOLDER = os.environ.get("PINCHPOINT_CORPUS")
if not FOLDER:
    pytest.skip("PINCHPOINT_CORPUS is not set", allow_module_level=True)
LABELLED = Path(FOLDER) / "labelled"


def cases():
    rows = [json.loads(line) for line in (LABELLED / "truth.jsonl").read_text().splitlines()]
    found = {}
    for row in rows:
        if row.get("world") == 2 and row["trace"]:
            found.setdefault((row["case"], row["variant"]), []).append(row)
    return [pytest.param(v, id=".".join(k)) for k, v in sorted(found.items()) if len(v) == 2]


@pytest.mark.parametrize("rows", cases())
def test_the_cause_is_named_first_and_no_other_case_is(rows):
    report = diagnose_ranks([LABELLED / row["trace"] for row in rows])
    said = [f.id for f in report.findings]
    truth = rows[0]["truth"]
    if truth == "healthy":
        assert not set(said) & {"straggler-rank", "rank0-stall", "nccl-slow-transport"}
    elif rows[0].get("material", True):
        assert said[0] == truth
    else:
        assert truth not in said
    assert abs(report.scaling.replay_error_ratio) < 0.06
    assert report.crashed == ()


def shifted(summary: RankSummary, shift_ns: int, drift: float) -> RankSummary:
    """The same rank under another clock."""

    def moved(column):
        times = unpack(column)
        if not len(times):
            return column
        return pack(np.rint(times + shift_ns + drift * (times - times[0])).astype(np.int64))

    replace = msgspec.structs.replace
    names = ("start_ns", "ready_ns")
    calls = replace(summary.calls, **{n: moved(getattr(summary.calls, n)) for n in names})
    names = ("start_ns", "end_ns")
    steps = replace(summary.steps, **{n: moved(getattr(summary.steps, n)) for n in names})
    return replace(summary, calls=calls, steps=steps)


@pytest.mark.parametrize("shift_ms", [-50, -7, 50])
def test_a_shifted_and_drifting_clock_changes_nothing(tmp_path, shift_ms):
    paths = [LABELLED / "traces" / f"c56_straggler_rank.slow.rank{r}.json.gz" for r in (0, 1)]
    records = [record_of(load(p), RankFile(str(p), r)) for r, p in enumerate(paths)]
    late = shifted(records[1].summary, shift_ms * 1_000_000, 20e-6)
    records[1] = msgspec.structs.replace(records[1], summary=late)
    part = tmp_path / "all.part"
    write_part(part, PartHeader(files=2), map(encode_record, records))
    report = merge_parts([part])
    assert [s.rank for s in report.stragglers] == [1]
    assert report.findings[0].id == "straggler-rank"
    assert report.clocks.largest_offset_ns == pytest.approx(abs(shift_ms) * 1_000_000, abs=20_000)
