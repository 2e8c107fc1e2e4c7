"""Values with a unit of their row, and the table of telemetry that has them."""

from builders import TraceBuilder
from pinchpoint.report.tables.build import profiled_table, sampled_table
from pinchpoint.report.tables.columns import numeric, shown_value


def sampled():
    builder = TraceBuilder()
    for name, value in (("sm_active_ratio", 0.987), ("memory_used_bytes", 1.75 * (1 << 30))):
        builder.add("counters", time_ns=0, name=name, value=value, device=0)
    return builder.trace()


def test_values_are_shown_in_the_unit_of_their_row():
    table = sampled_table(sampled())
    at = [column.id for column in table.columns].index("median")
    assert [shown_value(table, row, at) for row in table.rows] == ["98.7 %", "1.75 GiB"]
    assert numeric(table)[at]
    assert not numeric(table)[0]


def test_without_profiled_launches_there_is_no_table_of_them():
    assert profiled_table(sampled()) is None
