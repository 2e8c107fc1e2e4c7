"""Begin and end events are read as the complete events that they stand for."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kineto_documents import (
    GPU,
    SCANNERS,
    call,
    differences,
    document,
    kernel,
    op,
    read_with,
    written,
)
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.kineto import read, read_arguments
from pinchpoint.importers.kineto.pairs import Marks, matched

ANY = HealthCheck.function_scoped_fixture


def pair(event, *, end_named=True):
    """The two events that stand for a complete one."""
    begin = {k: v for k, v in event.items() if k != "dur"} | {"ph": "B"}
    end = {k: event[k] for k in ("pid", "tid")}
    end |= {"ph": "E", "ts": event["ts"] + event["dur"]}
    return begin, end | ({"name": event["name"]} if end_named else {})


def rows(trace):
    """What is read of the host, without positions in the file."""
    ops = trace.host_ops
    return [
        (trace.text(ops, "name", i), *(int(ops[c][i]) for c in columns))
        for columns in [("start_ns", "duration_ns", "kind", "thread", "parent")]
        for i in range(len(ops))
    ]


def health(trace):
    facts = trace.health
    return {trace.text(facts, "fact", i): int(facts["count"][i]) for i in range(len(facts))}


@pytest.mark.parametrize("scanner", SCANNERS)
def test_each_goes_to_the_lane_of_its_category(tmp_path, scanner):
    launch, ran = call("cudaLaunchKernel", 2, 3, 7), kernel("gemm", 6, 4, 7, grid=[1, 2, 3])
    outer = op("aten::mm", 1, 20, Input_Dims=[[2, 3]])
    one, two, three = pair(outer), pair(launch, end_named=False), pair(ran)
    events = [one[0], two[0], three[0], two[1], three[1], one[1]]
    pairs = read(written(tmp_path, document(*events), "pairs.json"), scanner=scanner)
    whole = read(written(tmp_path, document(outer, launch, ran), "whole.json"), scanner=scanner)
    assert rows(pairs) == rows(whole)
    assert health(pairs) == health(whole)
    for name in ("api_calls", "device_ops"):
        mine, theirs = getattr(pairs, name), getattr(whole, name)
        for column in mine.columns:
            if column not in ("event", "name", "grid", "block"):
                assert mine[column].tolist() == theirs[column].tolist(), column
    assert pairs.text(pairs.device_ops, "grid", 0) == "[1,2,3]"
    assert pairs.device_ops["event"].tolist() == [2]
    assert read_arguments(pairs, [2], scanner)[0]["stream"] == GPU["stream"]


spans = st.recursive(
    st.just([]), lambda inner: st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=4)
)


def laid_out(tree, at=0):
    """Complete events of nested spans, each beginning and ending at a time of its own."""
    events = []
    for name, inner in tree:
        begin = at
        inside, at = laid_out(inner, at + 1)
        events += [op(name, begin, at - begin), *inside]
        at += 1
    return events, at


@settings(deadline=None, suppress_health_check=[ANY], max_examples=50)
@given(spans, st.booleans(), st.randoms(use_true_random=False))
def test_nested_pairs_are_the_same_trace_as_complete_events(tmp_path, tree, end_named, random):
    whole = laid_out(tree)[0] + [op("last", 10**6, 1)]
    pairs = [e for each in whole for e in pair(each, end_named=end_named)]
    random.shuffle(pairs)  # a file need not be in order of time
    one = read(written(tmp_path, document(*whole), "whole.json"))
    other = read(written(tmp_path, document(*pairs), "pairs.json"))
    assert rows(other) == rows(one)
    assert health(other) == health(one)


@pytest.mark.parametrize("block_bytes", [None, 1, 100, 333])
@settings(deadline=None, suppress_health_check=[ANY], max_examples=30)
@given(
    events=st.lists(
        st.fixed_dictionaries(
            {"ph": st.sampled_from("BEX"), "tid": st.integers(1, 2), "ts": st.integers(0, 9)},
            optional={
                "name": st.sampled_from(["a", "b", "cudaLaunchKernel"]),
                "cat": st.sampled_from(["kernel", "cpu_op", "cuda_runtime", "Trace", "ac2g"]),
                "dur": st.integers(0, 5),
                "args": st.just({"stream": 7, "Collective name": "x", "correlation": 3}),
            },
        )
    )
)
@pytest.mark.skipif("native" not in SCANNERS, reason="no compiled scanner")
def test_both_scanners_agree(tmp_path, events, block_bytes):
    path = written(tmp_path, document(*events, op("z", 0, 1)))
    native, plain = (read_with(path, scanner, block_bytes) for scanner in SCANNERS)
    assert differences(native, plain) == []


CUT = [pair(op("a", 0, 10)), pair(op("b", 1, 2))]


@pytest.mark.parametrize(
    ("events", "names", "unmatched"),
    [
        pytest.param([CUT[0][0], *CUT[1]], ["b"], 1, id="an end is missing"),
        pytest.param([CUT[0][1], *CUT[1]], ["b"], 1, id="a begin is missing"),
        pytest.param([*CUT[0], CUT[1][0]], ["a"], 1, id="an inner end is missing"),
        pytest.param([*CUT[0], CUT[1][1]], ["a"], 1, id="an inner begin is missing"),
        pytest.param([CUT[0][1], CUT[1][0] | {"ts": 11}], [], 2, id="the end comes first"),
        pytest.param([CUT[0][0], CUT[0][1] | {"tid": 11}], [], 2, id="on other threads"),
    ],
)
def test_what_has_no_partner_is_left_out_and_counted(tmp_path, events, names, unmatched):
    trace = read(written(tmp_path, document(*events, op("z", 50, 1))))
    assert [row[0] for row in rows(trace)] == [*names, "z"]
    assert health(trace)["pairs-unmatched"] == unmatched


def test_pairs_without_a_time_are_no_pairs(tmp_path):
    begin, end = pair(op("a", 0, 5))
    trace = read(written(tmp_path, document(begin | {"ts": "x"}, end, op("z", 50, 1))))
    assert health(trace)["times-missing"] == 1
    assert health(trace)["pairs-unmatched"] == 1


def test_begins_alone_are_no_recording(tmp_path):
    with pytest.raises(UnreadableFile, match="without a single one"):
        read(written(tmp_path, document(CUT[0][0])))


def one_after_another(place, name, begins):
    """What the module promises, for one event after another."""
    found, opened = [], {}
    for i in range(len(place)):
        stack = opened.setdefault(place[i], [])
        if begins[i]:
            stack.append(i)
        elif name[i] < 0 or name[i] in [name[b] for b in stack]:
            while stack:
                top = stack.pop()
                if name[i] in (-1, name[top]):
                    found.append((top, i))
                    break
    return sorted(found)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2), st.booleans()), min_size=1).map(
        lambda marks: sorted(marks, key=lambda mark: mark[0])
    )
)
def test_matching(marks):
    place, name, begins = (np.array(column) for column in zip(*marks, strict=True))
    begin, end = matched(Marks(place.astype(np.int32), name.astype(np.int32), begins))
    found = sorted(zip(begin.tolist(), end.tolist(), strict=True))
    assert found == one_after_another(place.tolist(), name.tolist(), begins.tolist())
