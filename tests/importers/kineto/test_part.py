"""Of a large file the part that is asked for is kept, and never more than there is room for."""

import pytest

from kineto_documents import SCANNERS, document, launched, op, step, written
from pinchpoint.cli.recordings._window import Window
from pinchpoint.errors import OutOfMemory
from pinchpoint.importers import kineto
from pinchpoint.importers.files import memory
from pinchpoint.importers.kineto.reading import marks, scan, scanner
from pinchpoint.importers.kineto.reading.marks import part_of_step
from pinchpoint.trace.window import Part, window

STEPS, SECOND_US, SECOND_NS = 240, 1_000_000, 1_000_000_000
BEGIN_US = 5 * SECOND_US  # of the first event, in the file's own time


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(scan, "MANY_ROWS", 20)
    monkeypatch.setattr(scan, "_BESIDE_NS", 2 * SECOND_NS)
    for name in scanner.BLOCK_BYTES:
        monkeypatch.setitem(scanner.BLOCK_BYTES, name, 4096)


def steps(count=STEPS):
    """A step a second: marker, operator, launch, and its kernel a second and a half later."""
    for i in range(count):
        at = BEGIN_US + i * SECOND_US
        yield step(i, at, SECOND_US - 10)
        yield op("aten::mm", at + 100, 500)
        yield from launched("gemm", at + 200, at + 1.5 * SECOND_US, 1000, i + 1)


def said(trace):
    tables = (trace.steps, trace.host_ops, trace.api_calls, trace.device_ops)
    return [
        [(int(table["start_ns"][i]), trace.text(table, "name", i)) for i in range(len(table))]
        for table in tables
    ]


def facts(trace):
    return [trace.text(trace.health, "fact", i) for i in range(len(trace.health))]


@pytest.mark.parametrize("reader", SCANNERS)
@pytest.mark.parametrize(
    "part", [Part(20 * SECOND_NS, 23 * SECOND_NS), Part(237 * SECOND_NS, None)]
)
def test_a_part_is_what_it_is_of_the_whole(tmp_path, reader, part):
    path = written(tmp_path, document(*steps()))
    whole, some = kineto.read(path, scanner=reader), kineto.read(path, scanner=reader, part=part)
    assert (whole.source.first_ns, some.source.first_ns) == (None, 0)
    assert some.origin_ns == whole.origin_ns
    assert len(some.device_ops) < len(whole.device_ops) / 4
    until = STEPS * SECOND_NS if part.to_ns is None else part.to_ns
    mine = window(some, part.from_ns, until)
    assert said(mine) == said(window(whole, part.from_ns, until))
    assert [row[0] for row in said(mine)[0]] == list(range(part.from_ns, until, SECOND_NS))
    assert mine.device_ops.known("api_call").all()
    assert facts(some) == facts(whole)


@pytest.mark.parametrize("reader", SCANNERS)
def test_a_step_is_found_by_its_markers_before_all_is_read(tmp_path, monkeypatch, reader):
    monkeypatch.setattr(marks, "_BLOCK_BYTES", 4096)  # some markers lie across two blocks
    path = written(tmp_path, document(*steps()))
    whole = kineto.read(path, scanner=reader)
    for number in (0, 40, STEPS - 1):
        some = kineto.read(path, scanner=reader, part=Part(0, None, step=number))
        assert len(some.device_ops) < len(whole.device_ops) / 4
        assert facts(some) == facts(whole)
        mine = Window(step=number).cut(some)
        assert said(mine) == said(Window(step=number).cut(whole))
        assert said(mine)[0] == [(number * SECOND_NS, f"ProfilerStep#{number}")]


def test_each_marker_of_a_file_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(marks, "_BLOCK_BYTES", 4096)
    path = written(tmp_path, document(*steps(100)))
    for number in range(100):
        begin = (BEGIN_US + number * SECOND_US) * 1000
        assert part_of_step(path, number) == Part(0, SECOND_NS - 10_000, since_ns=begin)
    assert part_of_step(path, 100) is None


def test_without_the_marker_all_is_read(tmp_path):
    path = written(tmp_path, document(*steps()))
    whole = kineto.read(path, part=Part(0, None, step=1000))
    assert (len(whole.device_ops), whole.source.first_ns) == (STEPS, None)


def test_small_files_are_kept_whole(tmp_path):
    path = written(tmp_path, document(*launched("gemm", 0, 10, 5, 1)))
    trace = kineto.read(path, part=Part(3 * SECOND_NS, None))
    assert (len(trace.device_ops), trace.source.first_ns) == (1, None)


def test_an_event_long_before_all_others_that_comes_late_is_no_reason_to_lose_some(tmp_path):
    many = 1000  # more than one block, which its first event has to be told from
    path = written(tmp_path, document(*steps(many), *launched("early", 1, 10, 5, 5000)))
    part = Part(20 * SECOND_NS, 23 * SECOND_NS)
    trace = kineto.read(path, part=part)
    assert len(trace.device_ops) == many + 1
    assert trace.source.first_ns is None


def test_a_part_with_nothing_in_it_is_no_broken_file(tmp_path):
    path = written(tmp_path, document(*steps()))
    trace = kineto.read(path, part=Part(500 * SECOND_NS, None))
    assert (len(trace.host_ops), trace.source.first_ns is None) == (0, False)


def test_before_memory_is_exhausted_a_part_is_named_that_fits(tmp_path, monkeypatch):
    path = written(tmp_path, document(*steps()))
    monkeypatch.setattr(scan, "_LOOKS_EVERY", 1)
    monkeypatch.setattr(memory, "_limits", lambda: iter([1000]))
    with pytest.raises(OutOfMemory) as told:
        kineto.read(path)
    assert told.value.hint.startswith("look at a part of it: --from 0ms --to ")
    assert kineto.read(path, part=Part(20 * SECOND_NS, 21 * SECOND_NS)).source.first_ns == 0
