"""What the page shows of a table: nothing empty, long names on demand, every value for the CSV."""

from pinchpoint.report.documents.report import ResultTable, TableColumn
from pinchpoint.report.html_page.static import shown_table

LONG = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, 3>()"


def table(rows, *columns):
    heads = tuple(TableColumn(id=c, label=c, unit=u) for c, u in columns)
    return ResultTable(id="kernels", title="Kernels", columns=heads, rows=rows, rows_left_out=7)


def test_a_full_name_opens_below_the_short_one_and_stays_in_the_csv():
    found = shown_table(
        table((("add", 5, LONG),), ("name", ""), ("total", "ns"), ("full_name", ""))
    )
    assert [h.hidden for h in found.heads] == [False, False, True]
    first, total, full = found.rows[0]
    assert (first.text, first.full) == ("add", LONG)
    assert total.value == 5
    assert full.value == LONG


def test_a_name_that_is_its_own_full_name_has_nothing_to_open():
    found = shown_table(table((("gemm", "gemm"),), ("name", ""), ("full_name", "")))
    assert found.rows[0][0].full == ""


def test_a_column_without_any_value_is_not_shown():
    rows = (("a", None, 0), ("b", "", 1))
    found = shown_table(table(rows, ("name", ""), ("module", ""), ("calls", "count")))
    assert [h.label for h in found.heads] == ["name", "calls"]


def test_long_texts_are_cut_in_the_middle_and_whole_on_demand():
    found = shown_table(table((("step", LONG),), ("what", ""), ("call", "")))
    assert [h.css for h in found.heads] == ["word", "text"]
    cell = found.rows[0][1]
    assert len(cell.text) <= 64
    assert cell.full == cell.value == LONG


def test_rows_that_are_left_out_are_counted():
    assert shown_table(table((("a",),), ("name", ""))).left_out == 7
