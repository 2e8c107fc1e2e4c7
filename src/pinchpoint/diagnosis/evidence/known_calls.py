"""What calls of Python's libraries are as a rule, by their names: an advice for that case.

No evidence: what a call does with its input does not show. So an advice goes after a fix that holds
for any call, and says for what case it is. Figures are those of one thread of a server of 2023
(NumPy 2.4, torch 2.13, Python 3.11).
"""

from collections import Counter

from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.diagnosis.evidence.whole_run import call_at
from pinchpoint.diagnosis.finding import Location
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace

_BUILTIN = regex(r"<built-in (?:method|function) (\w+)")


@dataclass(frozen=True)
class _Known:
    names: tuple[str, ...]  # of the function, without its module; empty: any
    advice: str  # an imperative or a condition with one
    within: tuple[str, ...] = ()  # parts of what stands before, of which one does; empty: any


_NUMPY_RANDOM = ("np.random", "numpy.random")
_KNOWN = (
    _Known(
        ("iterrows", "itertuples", "apply", "applymap"),
        "pandas makes an object for each row: take columns as arrays once, and work on these",
        ("pandas",),
    ),
    _Known(
        (),
        "of keys that are categories groupby makes every pair, those that do not occur as well,"
        " unless observed=True; sums by group are np.bincount(codes, weights)",
        ("pandas.core.groupby",),
    ),
    _Known(
        ("__getitem__", "iloc", "loc", "at", "iat"),
        "pandas takes some 10 µs for each access: take the column as an array before the loop",
        ("pandas",),
    ),
    _Known(
        ("to_datetime", "strptime"),
        "give the format, and parse each distinct text once",
    ),
    _Known(
        ("choice", "permutation", "shuffle"),
        "np.random permutes all of it for a draw without replacement: the choice of a Generator"
        " (np.random.default_rng()) draws a few of many alone",
        _NUMPY_RANDOM,
    ),
    _Known(
        ("normal", "randn", "standard_normal", "rand", "random_sample", "uniform"),
        "np.random draws doubles, normal ones in 20 ns each: torch.randn takes 3, and a Generator"
        " draws uniform float32 (default_rng().random(n, dtype=np.float32)) in 2",
        _NUMPY_RANDOM,
    ),
    _Known(
        ("unique", "_unique_hash", "_unique1d", "isin", "in1d", "intersect1d"),
        "of whole numbers below a known bound a table that they index tells the same without a"
        " sort (np.bincount, or a mask)",
    ),
    _Known(
        ("append", "concatenate", "vstack", "hstack"),
        "an array that grows is copied each time: fill one of the final size",
        ("np", "numpy"),
    ),
    _Known(
        ("vectorize", "frompyfunc", "apply_along_axis"),
        "it calls Python for each element: write it with operations on whole arrays",
    ),
    _Known(
        ("deepcopy", "_reconstruct", "_deepcopy_dict", "_deepcopy_list"),
        "copy into what is kept from the last time (kept.copy_(new)), or only what changes",
    ),
    _Known(
        ("dumps", "loads"),
        "arrays go as their bytes (np.save, safetensors, shared memory), not as objects",
    ),
    _Known(
        ("decompress", "inflate", "decompressobj"),
        "inflate it once and keep it, or store it uncompressed and map it",
    ),
    _Known(
        ("match", "fullmatch", "search", "findall", "finditer", "sub", "split"),
        "if it is a regular expression, repeats inside repeats try every way to share the text;"
        " what it gives of a text that does not change is found once and kept",
    ),
    _Known(
        ("index", "remove", "count", "insert", "pop", "in"),
        "if it is a list, it is gone through from its beginning: a dict or set finds at once",
    ),
    _Known(("sort", "sorted"), "if little has changed since, bisect.insort keeps it sorted"),
    _Known(
        ("tensor", "as_tensor", "tolist"),
        "lists are gone through number by number: an array made of one (np.array) takes a fifth of"
        " a tensor made of it, and torch.from_numpy of an array nothing",
    ),
)


def advice_for(call: str) -> str:
    """What a call may be and what to do then, as looks spell it (``np.random.choice()``,
    ``pandas.core.groupby.generic.aggregate``), ``; `` before it; empty where nothing is known."""
    module, _, name = call.removesuffix("()").rpartition(".")
    for known in _KNOWN:
        fits = not known.within or any(part in module for part in known.within)
        if fits and (name in known.names or not known.names):
            return f"; {known.advice}"
    return ""


def advice_at(trace: Trace, place: Location | None, name: str = "") -> str:
    """The same for the call that most looks at a place were at, else for a row of a recording that
    has most of it, else for what most looks at that line were inside of."""
    if place is None:
        return ""
    said = advice_for(call_at(trace, place)) or advice_for_row(name)
    return said or advice_for_row(_inside(trace, place))


def _inside(trace: Trace, place: Location) -> str:
    """The function of a library that a line of the program is in most of the time, as looks have
    it; empty where it is not one in three of them."""
    samples, spent = trace.run.samples if trace.run else None, Counter[str]()
    for one in (one for t in samples.threads for one in t.spent) if samples else ():
        at = own_frame(one.frames)
        if at is None or (at.file, at.line) != (place.file, place.line):
            continue
        called = ""
        for name in one.frames:
            frame = frame_of(name)
            if frame is not None and frame.owner is Owner.USER:
                break
            called = name
        spent[called] += one.us
    name, us = max(spent.items(), key=lambda item: item[1], default=("", 0))
    return name if us >= INSIDE_RATIO * sum(spent.values()) else ""


INSIDE_RATIO = 1 / 3  # a judgement: of less, another call may be as much of it


def advice_for_row(name: str) -> str:
    """The same for a row of a recording: a frame (``pandas/core/frame.py(1505): iterrows``) or a
    built-in function."""
    frame = frame_of(name)
    if frame is not None:
        module = frame.file.removesuffix(".py").replace("/", ".")
        return advice_for(f"{module}.{frame.function}")
    found = _BUILTIN.match(name)
    return advice_for(found[1]) if found else ""
