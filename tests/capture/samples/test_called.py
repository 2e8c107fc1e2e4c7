"""What calls of libraries are given: read from the frame of a thread that runs."""

import dis
import os
import random
import threading
import time
from collections import deque
from types import SimpleNamespace

import pytest

from pinchpoint.capture.samples.called import LOOKS_FIRST, Calls
from pinchpoint.capture.samples.expressions import (
    UNKNOWN,
    Sized,
    called_of,
    value_of,
    written_at,
)
from pinchpoint.capture.samples.given import content, described
from pinchpoint.capture.samples.stacks import stack_of

np = pytest.importorskip("numpy", reason="NumPy is not installed")
POINTS = np.arange(30_000.0).reshape(10_000, 3)


class Guarded:
    """Says what was asked of it."""

    asked = False

    @property
    def size(self):
        type(self).asked = True
        return 3


NAMES = {
    "np": np,
    "x": POINTS,
    "n": 10_000,
    "rng": np.random.RandomState(0),
    "own": SimpleNamespace(points=POINTS, names=["a", "b"]),
    "guarded": Guarded(),
    "random": random,
    "os": os,
}


def expression(text):
    import ast

    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n", 10_000),
        ("n // 4 + 1", 2501),
        ("-n", -10_000),
        ("own.names[1]", "b"),
        ("len(own.names)", 2),
        ("x.shape[1]", 3),
        ("(n, 2)", (10_000, 2)),
        ("x + 1", Sized((10_000, 3))),
        ("np.exp(-x)", Sized((10_000, 3))),
        ("x.astype('f4')", Sized((10_000, 3))),
        ("os.path.join(own.names[0], 'b.npy')", "a/b.npy"),
        ("f'{own.names[0]}/{n}.npy'", "a/10000.npy"),
        ("f'{n:5d}'", UNKNOWN),
        ("guarded.size", UNKNOWN),
        ("elsewhere", UNKNOWN),
        ("n()", UNKNOWN),
    ],
)
def test_what_an_expression_is(text, value):
    found = value_of(expression(text), NAMES)
    assert found is value if value is UNKNOWN else found == value
    assert not Guarded.asked  # nothing of the program runs


def test_a_part_of_an_array_is_looked_at_without_copying_it():
    found = value_of(expression("own.points[:10, 0]"), NAMES)
    assert found.shape == (10,)
    assert found.base is not None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("np.sort", "numpy.sort"),
        ("np.linalg.inv", "numpy.linalg.inv"),
        ("rng.choice", "numpy.random.mtrand.RandomState.choice"),
        ("np.random.choice", "numpy.random.mtrand.RandomState.choice"),
        ("random.sample", "random.Random.sample"),
        ("own.names.index", "builtins.list.index"),
        ("x.sum", "numpy.ndarray.sum"),
        ("elsewhere.sum", ""),
    ],
)
def test_the_full_name_of_what_is_called(text, name):
    assert called_of(expression(text), NAMES)[0] == name


def inverse(a, b):
    return np.linalg.inv(a) @ b


def first(a, k):
    return np.argsort(a)[:k]


def grows(kept, new):
    kept = np.append(kept, new)
    return kept, new


def takes_a_row(path, i):
    data = np.load(path)
    return data[i], data[i + 1 :]


def takes_all(path, i):
    data = np.load(path)
    return data[i] / data.max()


@pytest.mark.parametrize(("function", "in_parts"), [(takes_a_row, True), (takes_all, False)])
def test_what_is_read_whole_and_used_in_parts(function, in_parts):
    call = next(o for o in dis.get_instructions(function) if o.opname.startswith("CALL"))
    written = written_at(function.__code__, call.offset)
    assert written is not None
    assert written.in_parts == in_parts


@pytest.mark.parametrize(
    ("function", "part"), [(inverse, "times"), (first, "index"), (grows, "onto")]
)
def test_what_the_text_does_with_the_answer(function, part):
    calls = [one for one in dis.get_instructions(function) if one.opname.startswith("CALL")]
    written = written_at(function.__code__, calls[0].offset)
    others = {"times", "index", "onto"} - {part}
    assert getattr(written, part) is not None
    assert all(getattr(written, other) is None for other in others)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, {"kind": "int", "value": 3.0}),
        (False, {"kind": "bool", "value": 0.0}),
        (0.25, {"kind": "float"}),
        ("secret", {"kind": "str", "shape": [6]}),
        (deque([1, 2]), {"kind": "collections.deque", "shape": [2]}),
        ([64, 3], {"kind": "list", "shape": [2], "of": "int", "of_shape": [64, 3]}),
        ([0.5] * 9, {"kind": "list", "shape": [9], "of": "float"}),
        (np.eye(9)[:, ::-1] + np.eye(9), {"is_of": "symmetric"}),
        (np.diag(np.arange(1.0, 10)), {"is_of": "diagonal"}),
        (np.arange(9.0).reshape(3, 3), {"is_of": "", "shape": [3, 3], "dtype": "float64"}),
        (np.linspace(0, 1, 11), {"is_of": "even"}),
        (np.array([0.0, 1.0, 5.0]), {"is_of": ""}),
        (np.array([4, 7]), {"value": 7.0}),
    ],
)
def test_a_value_in_numbers(value, said):
    found = described("x", value)
    assert found == found | said
    assert "secret" not in str(found)


def test_a_word_for_what_a_value_holds():
    from pinchpoint.capture.process.contents import Contents, Untold

    contents = Contents()
    assert content(POINTS, contents) == content(POINTS.copy(), contents)
    assert content(POINTS, contents) != content(POINTS + 1, contents)
    with pytest.raises(Untold):
        content(SimpleNamespace(), contents)  # it may change within


def searches(points, going_on, entered):
    entered.set()
    while going_on.locked():
        np.argsort(points, axis=0)
        time.sleep(0.001)


def test_a_thread_that_calls_again_and_again_with_the_same():
    going_on, entered = threading.Lock(), threading.Event()
    going_on.acquire()
    points = np.random.default_rng(0).random((20_000, 3))
    thread = threading.Thread(target=searches, args=(points, going_on, entered), daemon=True)
    thread.start()
    entered.wait(10)
    calls = Calls()
    try:
        for _ in range(20_000):
            calls.look(thread.ident, stack_of(thread.ident))
            found = [one for one in calls.document() if one["called"] == "numpy.argsort"]
            if found and found[0]["compared"] == 2:
                break
            time.sleep(0.0005)
    finally:
        going_on.release()
        thread.join()
    (note,) = found
    assert note["at"][2] == "searches"
    assert note["doing"] == "np.argsort()"
    assert note["looks"] >= LOOKS_FIRST
    array, axis = note["given"]
    assert (array["shape"], array["alike"]) == ([20_000, 3], 2)
    assert (axis["name"], axis["value"], axis["alike"]) == ("axis", 0.0, 2)
