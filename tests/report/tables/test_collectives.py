"""Collectives of one rank, summed by kind and kernel."""

from analysis.device.test_collectives import ALL_REDUCE, reducing
from pinchpoint.report.tables.build import collective_table


def test_collectives_are_summed_with_what_nothing_hides():
    table = collective_table(reducing(ALL_REDUCE | {"dtype": "Float"}))
    (row,) = table.rows
    said = dict(zip([column.id for column in table.columns], row, strict=True))
    assert said["kind"] == "allreduce"
    assert said["calls"] == 3
    assert said["exposed_ns"] == said["total_ns"] == 3_000_000
    assert (said["bytes"], said["group_size"]) == (12_000_000, 4)
    assert said["bus_rate"] == 6.0


def test_what_was_not_recorded_is_null():
    table = collective_table(reducing({}))
    said = dict(zip([column.id for column in table.columns], table.rows[0], strict=True))
    assert (said["bytes"], said["group_size"], said["bus_rate"]) == (None, None, None)
