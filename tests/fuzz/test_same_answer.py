"""Changes of a file that must change nothing of what any reader makes of it."""

import gzip
import json
import random
import zipfile
from pathlib import Path

import pytest

from fuzz.samples import samples
from importers.test_formats import SAMPLES
from importers.test_nsys_stats import GPU_TRACE
from pinchpoint.importers import load
from pinchpoint.trace import TABLES, Table

FOLDERS = ("run folder", "bench folder")
# Tables of one event a line, in any order of lines below the header.
BY_LINE = {
    "rocprofv3 csv": ("r.csv", samples()["rocprofv3 csv"].files["r.csv"].decode()),
    "ascend table": ("k.csv", samples()["ascend table"].files["kernel_details.csv"].decode()),
    "nsys trace": ("n.csv", GPU_TRACE[GPU_TRACE.index("Start (ns)") :].split("\n\n")[0] + "\n"),
}
AS_JSON = {
    "rocprofv3": samples()["rocprofv3"].files["r.json"],
    "ascend view": samples()["ascend view"].files["trace_view.json"],
    "kineto": samples()["run folder"].files["run/traces/t.json"],
    "memory timeline": gzip.decompress(samples()["memory timeline"].files["m.raw.json.gz"]),
}


def said(path):
    """All tables with their texts, and what else a trace holds of devices and threads."""
    trace = load(path)
    tables = {
        name: _columns(trace, held)
        for name in trace.__dataclass_fields__
        if isinstance(held := getattr(trace, name), Table)
    }
    snapshot = trace.snapshot
    events = None if snapshot is None else _columns(trace, snapshot.events)
    return tables, events, trace.devices, trace.threads, trace.summaries


def _columns(trace, held):
    found = {}
    for column, values in held.columns.items():
        cells = values.tolist()
        if TABLES[held.name][column].refers_to == "names":
            cells = [trace.names[cell] if cell < len(trace.names) else None for cell in cells]
        known = held.known(column).tolist()
        found[column] = [c if there else None for c, there in zip(cells, known, strict=True)]
    return found


def gzipped(path, folder):
    packed = folder / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed


def zipped(path, folder):
    packed = folder / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, path.name)
    return packed


def by_url(path, folder):
    pytest.importorskip("fsspec")
    return f"file://{path}"


@pytest.mark.parametrize("change", [gzipped, zipped, by_url])
@pytest.mark.parametrize("name", [n for n in SAMPLES if n not in FOLDERS])
def test_a_packing_or_an_address_changes_nothing(name, change, tmp_path):
    for number, file in enumerate(SAMPLES[name](tmp_path)):
        (home := tmp_path / f"other{number}").mkdir()
        before = said(file)
        if file.suffix == ".gz":
            plain = home / file.stem
            plain.write_bytes(gzip.decompress(file.read_bytes()))
            assert said(plain) == before
            file = plain
        assert said(change(Path(file), home)) == before


@pytest.mark.parametrize("name", BY_LINE)
def test_the_order_of_lines_changes_nothing(name, tmp_path):
    file, text = BY_LINE[name]
    header, *rows = text.splitlines(keepends=True)
    assert len(rows) > 1
    (tmp_path / file).write_text(text)
    before = said(tmp_path / file)
    rng = random.Random(name)
    for _ in range(3):
        rng.shuffle(rows)
        (tmp_path / file).write_text("".join([header, *rows]))
        assert said(tmp_path / file) == before


@pytest.mark.parametrize("name", AS_JSON)
def test_the_layout_of_json_changes_nothing(name, tmp_path):
    document = json.loads(AS_JSON[name])
    file = tmp_path / ("m.raw.json" if name == "memory timeline" else "trace_view.json")
    found = []
    for layout in ({}, {"indent": 1}, {"separators": (",", ":")}, {"indent": "\t"}):
        file.write_text(json.dumps(document, **layout))
        found.append(said(file))
    assert all(each == found[0] for each in found)
