"""Rows in the order of a column."""

import msgspec
import pytest

from pinchpoint.errors import UsageError
from pinchpoint.report.documents.order import by_column, by_field, tables_by
from pinchpoint.report.documents.report import PartOfStep, ResultTable, TableColumn

COLUMNS = (TableColumn(id="name", label="kernel"), TableColumn(id="calls", label="calls"))
TABLE = ResultTable(
    id="kernels", title="Kernels", columns=COLUMNS, rows=(("b", 2), ("a", None), ("c", 7))
)


def test_largest_first_and_unknown_last():
    assert [row[0] for row in by_column(TABLE, "calls").rows] == ["c", "b", "a"]
    assert [row[0] for row in by_column(TABLE, "kernel").rows] == ["a", "b", "c"]


def test_the_column_is_moved_to_where_a_narrow_screen_shows_it():
    columns = (*COLUMNS, TableColumn(id="bytes", label="moves"))
    table = msgspec.structs.replace(TABLE, columns=columns, rows=(("b", 2, 5), ("a", 1, 9)))
    found = by_column(table, "moves")
    assert [column.id for column in found.columns] == ["name", "bytes", "calls"]
    assert found.rows == (("a", 9, 1), ("b", 5, 2))
    assert by_column(table, "name").columns == columns


def test_a_field_without_its_unit():
    parts = [
        PartOfStep(part=str(ns), label="", group="", ns_per_step=ns, unprofiled_ns_per_step=None)
        for ns in (1, 3, 2)
    ]
    assert [one.part for one in by_field(parts, "ns_per_step", PartOfStep)] == ["3", "2", "1"]


def test_a_column_that_there_is_not():
    with pytest.raises(UsageError, match="weight"):
        by_column(TABLE, "weight")


def test_all_tables_that_have_the_column():
    report = msgspec.defstruct("Report", [("tables", dict)])
    other = msgspec.structs.replace(TABLE, id="other", columns=TABLE.columns[:1])
    (found,) = tables_by([report({"mine": TABLE, "other": other})], "calls")
    assert [row[0] for row in found.tables["mine"].rows] == ["c", "b", "a"]
    assert found.tables["other"] == other
    (found,) = tables_by([report({"mine": TABLE})], "kernel")
    assert [row[0] for row in found.tables["mine"].rows] == ["a", "b", "c"]
    with pytest.raises(UsageError, match="weight"):
        tables_by([report({"mine": TABLE})], "weight")


def test_a_column_that_there_is_not_of_no_rows():
    with pytest.raises(UsageError, match="weight"):
        by_field([], "weight", PartOfStep)
    assert by_field([], "ns_per_step", PartOfStep) == ()
