"""Stacks merged into a tree, on calls whose sums are known."""

from builders import TraceBuilder
from pinchpoint.analysis.tables.call_tree import THREAD, call_tree


def paths(trace):
    """Each node as its path of names, with calls, host and device time."""
    tree = call_tree(trace)
    names = []
    for node in range(len(tree)):
        own = "thread" if tree.name[node] == THREAD else trace.names[tree.name[node]]
        above = f"{names[tree.parent[node]]}/" if tree.parent[node] >= 0 else ""
        names.append(above + own)
    columns = zip(
        names, tree.calls.tolist(), tree.host_ns.tolist(), tree.device_ns.tolist(), strict=True
    )
    return {name: values for name, *values in columns}


def test_calls_with_one_path_are_one_node():
    builder = TraceBuilder()
    for at in (0, 100):
        builder.op("step", at, 80)
        builder.op("mm", at + 10, 20)
        builder.launch(at=at + 15, takes=5, kernel="gemm", runs_at=at + 30, for_ns=40)
    assert paths(builder.trace()) == {
        "thread": [0, 160, 80],
        "thread/step": [2, 160, 80],
        "thread/step/mm": [2, 40, 80],
        "thread/step/mm/cudaLaunchKernel": [2, 10, 0],
    }


def test_threads_have_trees_of_their_own():
    builder = TraceBuilder()
    other = builder.thread("worker")
    builder.op("mm", 0, 10)
    builder.op("mm", 0, 30, thread=other)
    tree = call_tree(builder.trace())
    assert tree.parent.tolist() == [-1, -1, 0, 1]
    assert tree.host_ns.tolist() == [10, 30, 10, 30]


def test_own_time_leaves_out_children_and_is_never_negative():
    builder = TraceBuilder()
    builder.op("a", 0, 100)
    builder.op("b", 10, 30)
    tree = call_tree(builder.trace())
    assert tree.own(tree.host_ns).tolist() == [0, 70, 30]


def test_a_recording_without_host_calls_has_no_tree():
    assert len(call_tree(TraceBuilder().trace())) == 0


def test_steps_are_one_node():
    builder = TraceBuilder()
    for number in (3, 4):
        builder.step(number, 100 * number, 90)
        builder.op("mm", 100 * number + 5, 10)
    trace = builder.trace()
    tree = call_tree(trace)
    assert tree.labels(trace) == ["main", "step", "mm"]
    assert tree.calls.tolist() == [0, 2, 2]
