"""Cycles by instruction as rocprofv3's thread trace sums them."""

import tracemalloc

import pytest

import pinchpoint as pp
from pinchpoint.errors import UnreadableFile

HEAD = '"CodeObj","Vaddr","Instruction","Hitcount","Latency","Stall","Idle","Source"\n'
TRACED = (
    HEAD
    + """2,0,"; _Z4gemmPf",0,0,0,0,""
2,8,"s_load_dwordx4 s[12:15], s[0:1], 0x20",4,16,0,100,"a.hip:3"
2,16,"s_waitcnt vmcnt(0)",4,60,60,4,""
2,24,"s_waitcnt lgkmcnt(0)",4,20,20,0,""
2,32,"v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]",4,104,24,0,"a.hip:9"
2,40,"s_endpgm",0,0,0,0,""
"""
)


def load(folder, text):
    path = folder / "stats_ui_output_agent_1_dispatch_2.csv"
    path.write_text(text, "utf-8")
    return pp.load(path)


def test_cycles_by_instruction_and_by_kind(tmp_path):
    trace = load(tmp_path, TRACED)
    said, kinds, instructions, traced = trace.summaries
    assert trace.source.format == "rocprofv3 instructions"
    found = dict(said.rows)
    assert found["cycles of the traced waves"] == "200"
    assert found["stalled of them"] == "52.0 %"
    assert found["instructions"] == "5, 4 of them reached"
    assert kinds.rows == (
        ("v_mfma", "52.0", "104"), ("s_waitcnt", "40.0", "80"), ("s_load", "8.0", "16"),
    )  # fmt: skip
    assert instructions.rows[0][1:] == ("52.0", "104", "24", "4", "a.hip:9")
    assert [row[0] for row in instructions.rows[1:]] == [
        "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)", "s_load_dwordx4 s[12:15], s[0:1], 0x20",
    ]  # fmt: skip
    assert traced.rows == (("kernel", "_Z4gemmPf"),)


def test_a_kernel_that_no_traced_wave_came_to_is_refused(tmp_path):
    with pytest.raises(UnreadableFile) as error:
        load(tmp_path, HEAD + '2,8,"s_endpgm",0,0,0,0,""\n')
    assert "no traced wave" in str(error.value)
    assert "--att-target-cu" in error.value.hint


def test_a_row_that_is_cut_off_is_left_out(tmp_path):
    said, *_ = load(tmp_path, TRACED[:-20]).summaries
    assert dict(said.rows)["instructions"] == "4, 4 of them reached"
    assert dict(said.rows)["cycles of the traced waves"] == "200"


@pytest.mark.parametrize("cell", ["²", "9" * 5000, "-1", "nan"])
def test_a_damaged_row_takes_no_other_along(tmp_path, cell):
    damaged = f'2,36,"v_x",1,{cell},0,0,""\n2,38,"not closed,1,1,1,1,""\n'
    begins, _, end = TRACED.partition("2,32,")
    trace = load(tmp_path, begins + damaged + "2,32," + end)
    assert dict(trace.summaries[0].rows)["cycles of the traced waves"] == "200"
    assert trace.text(trace.health, "fact", 0) == "rows-cut"
    assert trace.health["count"].tolist() == [2]


def test_rows_of_as_many_kinds_as_there_are_take_no_more_than_the_file(tmp_path):
    letters = "abcdefghij"
    rows = [
        "".join(letters[int(digit)] for digit in f"{n:05d}") + f"_x v{n},1,{n + 1},0,0,\n"
        for n in range(20_000)
    ]
    text = HEAD + "".join(f"2,{n},{row}" for n, row in enumerate(rows))
    load(tmp_path, text)  # what is imported first does not count
    tracemalloc.start()
    trace = load(tmp_path, text)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 3 * len(text)
    _, kinds, instructions = trace.summaries
    assert kinds.rows[0][0] == "others"
    assert instructions.rows[0][2] == "20,000"
