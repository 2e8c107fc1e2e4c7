"""Operations on whole arrays."""

from itertools import pairwise
from math import prod

from pinchpoint.diagnosis.evidence.slow_ways.way import (
    FEW_RATIO,
    MANY,
    NUMBERS,
    Said,
    Way,
    is_array,
    is_false,
    numbers_in,
    taken,
)
from pinchpoint.trace.run_samples import Called, Given

_LEAST_ROWS = 64  # of a matrix: smaller ones take less than the calls around them
_NUMPY = r"^(numpy\.(?!random)|@)"
_JOINS = ("stack", "concatenate", "append", "block", "c_", "r_", "meshgrid", "broadcast_arrays")


def _square(given: Given | None) -> int:
    """Rows of a square matrix, or of each of a batch; else 0."""
    if given is None or len(given.shape) < 2 or given.shape[-1] != given.shape[-2]:
        return 0
    return given.shape[-1]


def _inverse(call: Called) -> Said | None:
    rows, times = _square(call.one("0", "a")), call.one("@")
    if rows < _LEAST_ROWS or times is None or not times.shape:
        return None
    columns = times.shape[-1] if len(times.shape) > 1 else 1
    if columns > rows // 4:
        return None
    return Said(
        f"inverts a matrix of {rows:,} x {rows:,} to multiply {columns:,} columns", (0.2, 0.6)
    )


def _all_vectors(call: Called) -> Said | None:
    of = call.one("0", "a")
    if of is None or len(of.shape) < 2 or is_false(call.one("compute_uv")):
        return None
    if is_false(call.one("full_matrices", "1")):
        return None
    long, short = max(of.shape[-2:]), min(of.shape[-2:])
    if long < 4 * short or long < _LEAST_ROWS:
        return None
    return Said(
        f"makes {long:,} x {long:,} singular vectors of a matrix of {long:,} x {short:,}",
        (0.01, min(4 * short / long, 0.7)),
    )


def _values_alone(call: Called) -> Said | None:
    at = call.one("[]")
    second = at is not None and at.kind == "int" and at.value == 1
    if not second or numbers_in(call.one("0", "a")) < _LEAST_ROWS**2:
        return None
    return Said("makes singular vectors, of which none is taken", (0.3, 0.7))


def _symmetric(call: Called) -> Said | None:
    of = call.one("0", "a")
    if of is None or of.is_of != "symmetric" or _square(of) < _LEAST_ROWS:
        return None
    least, most = (0.25, 0.6) if call.called.endswith("svd") else (0.1, 0.5)
    return Said(f"takes a symmetric matrix of {_square(of):,} rows for any", (least, most))


def _einsum(call: Called) -> Said | None:
    letters, optimize = call.one("0"), call.one("optimize")
    if letters is None or (optimize is not None and not is_false(optimize)):
        return None
    operands = [one for one in call.given if one.name.isdecimal() and one.name != "0"]
    shapes = [one.shape for one in operands]
    inputs, _, answer = letters.text.replace(" ", "").partition("->")
    words = inputs.split(",")
    if len(words) != len(shapes) or len(words) < 2 or "." in letters.text or not answer:
        return None
    if any(len(word) != len(shape) for word, shape in zip(words, shapes, strict=True)):
        return None
    sizes = {x: n for w, s in zip(words, shapes, strict=True) for x, n in zip(w, s, strict=True)}
    work = prod(sizes.values())
    if work < 100 * MANY:  # multiplications, that take a tenth of a millisecond
        return None
    if len(words) > 2:
        least = max(prod(sizes[x] for x in set(a) | set(b)) for a, b in pairwise(words))
        return Said(
            f"goes through {work:.2g} products of {len(words)} factors, as optimize= is not given",
            (0.005, min(max(2 * least / work, 0.1), 0.7)),
        )
    a, b = words
    summed = (set(a) & set(b)) - set(answer)
    if not summed or not set(a) - set(b) or not set(b) - set(a):
        return None
    return Said("sums products in a loop of its own, without the BLAS library", (0.05, 0.4))


def _few_of_a_sort(call: Called) -> Said | None:
    of, some = call.one("0", "a", "self"), taken(call)
    if of is None or not of.shape or call.one("order") is not None:
        return None
    length = of.shape[0] if len(of.shape) == 1 else 0
    if length < MANY or not 0 < some <= FEW_RATIO * length:
        return None
    listed = of.kind in ("list", "tuple")
    least, most = (0.1, 0.5) if listed or "arg" in call.called else (0.2, 0.6)
    return Said(f"sorts {length:,} to take {some:,}", (least, most))


def _python_for_each(call: Called) -> Said | None:
    each = call.called.endswith(("vectorize.__call__", "apply_along_axis"))
    given = [one for one in call.given if one.kind == "array"]
    size = max((numbers_in(one) for one in given), default=0)
    if not each or size < MANY:
        return None
    what = "each row" if call.called.endswith("axis") else "each number"
    return Said(f"calls Python for {what} of {size:,} numbers", (0.02, 0.3))


def _objects(call: Called) -> Said | None:
    of = next((g for g in call.given if is_array(g, "object") and prod(g.shape) >= MANY), None)
    if of is None:
        return None
    return Said(
        f"works on {prod(of.shape):,} Python objects, as the array's dtype is object", (0.01, 0.3)
    )


def _whole_numbers(call: Called) -> Said | None:
    a, b = call.one("self", "0"), call.one("0" if call.one("self") else "1")
    if a is None or b is None or not (is_array(a, "int", "uint") and is_array(b, "int", "uint")):
        return None
    if min(len(a.shape), len(b.shape)) < 2 or min(*a.shape[-2:], *b.shape[-2:]) < 16:
        return None
    return Said(
        f"multiplies whole numbers ({_by(a)} @ {_by(b)}, {a.dtype}) without the BLAS library,"
        " which has floats alone",
        (0.03, 0.3),
    )


def _by(given: Given) -> str:
    return " x ".join(f"{n:,}" for n in given.shape)


def _half(call: Called) -> Said | None:
    if not call.called.endswith(("@", ".dot", ".matmul", ".mean", ".sum", ".einsum", ".std")):
        return None
    of = next((g for g in call.given if is_array(g, "float16") and prod(g.shape) >= MANY), None)
    if of is None:
        return None
    product = call.called.endswith(("@", ".dot", ".matmul", ".einsum"))
    return Said(
        f"converts each of {prod(of.shape):,} numbers of 16 bits on its own",
        (0.01, 0.2) if product else (0.1, 0.6),
    )


def _diagonal(call: Called) -> Said | None:
    of = next((one for one in call.given if one.is_of == "diagonal"), None)
    others = [one for one in call.given if one is not of and len(one.shape) >= 2]
    if of is None or of.shape[0] < _LEAST_ROWS or not others:
        return None
    return Said(f"multiplies by a diagonal matrix of {of.shape[0]:,} rows in full", (0.03, 0.3))


def _listed(call: Called) -> Said | None:
    if any(one in call.called for one in _JOINS):
        return None
    of = next((g for g in call.given if g.name in ("0", "a", "object", "data")), None)
    if of is None or of.kind not in ("list", "tuple") or numbers_in(of) < MANY:
        return None
    if of.of in NUMBERS or of.of in ("list", "tuple"):
        return Said(f"goes through {numbers_in(of):,} Python numbers in lists", (0.01, 0.4))
    return None


def _growing(call: Called) -> Said | None:
    of = next((one for one in call.given if one.onto), None)
    if of is None or call.compared < 2:
        return None
    now, first = (of.of_shape, of.first_of_shape) if of.of else (of.shape, of.first_shape)
    if not now or not first or prod(now) < 100 * MANY or prod(now) < prod(first):
        return None
    what = "an array" if of.kind != "tensor" else "a tensor"
    if prod(now) > 1.05 * prod(first):
        return Said(
            f"copies {what} that grows ({prod(now):,} numbers by now) each time", (0.02, 0.3)
        )
    return Said(f"copies {what} of {prod(now):,} numbers to put new ones beside it", (0.02, 0.4))


def _known_range(call: Called) -> Said | None:
    of = call.one("0", "ar")
    if of is None or not is_array(of, "int", "uint") or prod(of.shape) < 10 * MANY:
        return None
    if len(of.shape) == 1 and of.value is not None and of.value <= 4 * of.shape[0]:
        return Said(
            f"sorts or hashes {of.shape[0]:,} whole numbers, all of them below {of.value + 1:,.0f}"
            " as far as was seen",
            (0.05, 0.3),
        )
    by_rows = call.one("axis")
    if len(of.shape) == 2 and by_rows is not None and by_rows.value == 0:
        return Said(f"sorts {of.shape[0]:,} rows as records", (0.1, 0.4))
    return None


def _even_edges(call: Called) -> Said | None:
    edges = next((one for one in call.given if one.is_of == "even"), None)
    sought = max((numbers_in(g) for g in call.given if g is not edges), default=0)
    if edges is None or sought < 10 * MANY or edges.shape[0] < 8:
        return None
    return Said(
        f"searches for each of {sought:,} numbers among {edges.shape[0]:,} edges that are evenly"
        " spaced",
        (0.03, 0.3),
    )


def _by_rows(call: Called) -> Said | None:
    of, axis = call.one("0", "a"), call.one("axis", "2")
    if of is None or axis is None or axis.kind != "int" or len(of.shape) < 2:
        return None
    length = of.shape[int(axis.value or 0)] if abs(axis.value or 0) < len(of.shape) else 0
    rows = prod(of.shape) // max(length, 1)
    if rows < 100:  # Python functions, of some 20 us each
        return None
    return Said(f"calls Python for each of {rows:,} rows", (0.01, 0.2))


def _python_over_array(call: Called) -> Said | None:
    of = call.one("0")
    if of is None or of.kind not in ("array", "tensor") or len(of.shape) != 1:
        return None
    if of.shape[0] < MANY:
        return None
    return Said(f"makes a Python object of each of {of.shape[0]:,} numbers", (0.005, 0.3))


_LINALG = r"^(numpy|scipy)\.linalg\b.*\b"
ARRAYS = (
    Way(
        _LINALG + r"inv$",
        _inverse,
        "Solve for these columns",
        "np.linalg.solve(a, b)  # inv(a) @ b",
    ),
    Way(
        _LINALG + r"svd$",
        _all_vectors,
        "Make those that belong to a singular value",
        "np.linalg.svd(a, full_matrices=False)",
    ),
    Way(
        _LINALG + r"svd$",
        _values_alone,
        "Ask for values alone",
        "np.linalg.svd(a, compute_uv=False)",
    ),
    Way(
        _LINALG + r"(eig|eigvals|svd)$",
        _symmetric,
        "Take the functions for symmetric matrices",
        "np.linalg.eigh(a)  # or eigvalsh",
    ),
    Way(
        r"^numpy\.einsum$",
        _einsum,
        "Let it choose an order and use BLAS, or write the product with @",
        'np.einsum("...", ..., optimize=True)',
    ),
    Way(
        r"^(numpy\..*\b(sort|argsort)|builtins\.sorted)$",
        _few_of_a_sort,
        "Find these few without sorting the rest",
        "np.argpartition(x, k)[:k]  # np.partition for values; of a list heapq.nsmallest(k, x)",
    ),
    Way(
        r"^numpy\..*(vectorize\.__call__|apply_along_axis)$",
        _python_for_each,
        "Write it with operations on whole arrays, which np.vectorize is not",
        "np.where(x > 0, x * a, 0.0)  # in place of a function with an if",
    ),
    Way(
        _NUMPY,
        _objects,
        "Keep numbers in an array of numbers: say its dtype where it is made",
        "np.asarray(x, dtype=np.float64)  # once",
        always=False,
    ),
    Way(
        r"^(@|numpy\..*\b(dot|matmul))$",
        _whole_numbers,
        "Multiply as floats, which hold whole numbers below 2**53 exactly",
        "(a.astype(np.float64) @ b).astype(a.dtype)  # convert once what stays",
    ),
    Way(
        _NUMPY,
        _half,
        "Compute in float32, and keep 16 bits for what is stored",
        "x = x.astype(np.float32)  # once",
        always=False,
    ),
    Way(
        r"^(@|numpy\..*\b(dot|matmul))$",
        _diagonal,
        "Scale rows or columns by the diagonal",
        "d[:, None] * x  # np.diag(d) @ x; x * d for x @ np.diag(d)",
    ),
    Way(
        r"^(numpy\.(?!random)|torch\.(tensor|as_tensor|asarray)$)",
        _listed,
        "Keep them in an array from the beginning, and fill that in place",
        "x = np.empty(n, np.float32)  # once; x[i] = value",
        always=False,
    ),
    Way(
        r"^(numpy\..*(append|concatenate|vstack|hstack|insert|delete|roll)|pandas\..*concat)$",
        _growing,
        "Fill one of the final size, or a ring, and hand out a view of it",
        "kept[n : n + len(new)] = new; n += len(new)  # kept = np.empty(most), once",
        always=False,
    ),
    Way(
        r"^numpy\..*\bunique$",
        _known_range,
        "Count whole numbers of a known range; put several of a row into one number first",
        "np.bincount(x).nonzero()[0]  # rows: np.unique(x[:, 0] * n + x[:, 1])",
        always=False,
    ),
    Way(
        r"^numpy\..*\b(digitize|searchsorted|histogram2d|histogramdd)$",
        _even_edges,
        "Compute the place of each from the first edge and the distance",
        "at = ((x - low) / width).astype(np.int64)  # then np.bincount(at) for counts",
    ),
    Way(
        r"^numpy\..*\b(nanpercentile|nanquantile)$",
        _by_rows,
        "Where a row has no NaN take np.percentile, which does all rows at once",
        "np.percentile(x, q, axis=1)  # rows with NaN on their own",
        always=False,
    ),
    Way(
        r"^(builtins\.(sum|max|min|any|all)|collections\.Counter)$",
        _python_over_array,
        "Ask the array itself",
        "x.sum()  # x.max(); np.bincount(x) or np.unique(x, return_counts=True) for counts",
    ),
)
