"""SciPy: filters, transforms, distances, statistics, sparse matrices."""

from math import log2, prod

from pinchpoint.diagnosis.evidence.slow_ways.way import MANY, Said, Way, is_array, numbers_in
from pinchpoint.trace.run_samples import Called

# One thread: a product with its sum, directly, and of a transform a number times the logarithm.
_DIRECT_NS, _DIRECT_2D_NS, _TRANSFORM_NS = 0.07, 1.0, 1.3
_WORTH = 0.6  # of its time at most left: with more, the better way may be the slower one


def _transform(call: Called) -> Said | None:
    a, b = call.one("0", "a", "in1"), call.one("1", "v", "in2")
    if a is None or b is None or len(a.shape) != 1 or len(b.shape) != 1:
        return None
    return _by_transform(a.shape[0] * b.shape[0] * _DIRECT_NS, a.shape[0], b.shape[0])


def _by_transform(direct_ns: float, long: int, taps: int) -> Said | None:
    long, taps = max(long, taps), min(long, taps)
    block = min(long + taps, 8 * taps)  # by overlapping parts
    other_ns = 2 * (long + taps) * log2(max(block, 2)) * _TRANSFORM_NS / 2
    left = other_ns / max(direct_ns, 1)
    if left > _WORTH or taps < 32:
        return None
    return Said(
        f"multiplies {long:,} numbers by {taps:,} taps one by one", (left / 2, min(2 * left, 0.9))
    )


def _long_filter(call: Called) -> Said | None:
    taps, feeds, x = call.one("0", "b"), call.one("1", "a"), call.one("2", "x")
    one = feeds is not None and feeds.kind in ("int", "float")
    if not one or taps is None or x is None or len(taps.shape) != 1 or not x.shape:
        return None
    rows = prod(x.shape[:-1])
    return _by_transform(
        rows * x.shape[-1] * taps.shape[0] * _DIRECT_NS, x.shape[-1], taps.shape[0]
    )


def _planes(call: Called) -> Said | None:
    a, b = call.one("0", "in1", "input"), call.one("1", "in2", "weights")
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    large, small = sorted((a, b), key=lambda one: -prod(one.shape))
    numbers = prod(large.shape)
    each = log2(max(numbers, 2)) * 3 * _TRANSFORM_NS / 2
    left = each / (prod(small.shape) * _DIRECT_2D_NS * (0.5 if "ndimage" in call.called else 1))
    if left > _WORTH or numbers < 10 * MANY:
        return None
    return Said(
        f"multiplies each of {numbers:,} pixels by {prod(small.shape):,} weights one by one",
        (left / 2, min(2 * left, 0.9)),
    )


def _python_for_pixels(call: Called) -> Said | None:
    size = numbers_in(call.one("0", "input"))
    return Said(f"calls Python for each of {size:,} pixels", (0.002, 0.1)) if size >= MANY else None


def largest_factor(number: int) -> int:
    """The largest prime of a whole number."""
    largest, factor = 1, 2
    while factor * factor <= number:
        while number % factor == 0:
            largest, number = factor, number // factor
        factor += 1
    return max(largest, number)


def _length(call: Called) -> Said | None:
    of, n, axis = call.one("0", "a", "x"), call.one("1", "n"), call.one("axis", "2")
    if of is None or not of.shape or axis is not None:
        return None
    length = int(n.value) if n is not None and n.kind == "int" and n.value else of.shape[-1]
    factor = largest_factor(length)
    if length < MANY or factor < 50:  # Bluestein's way, or a factor gone through one by one
        return None
    return Said(
        f"transforms a length of {length:,}, whose prime {factor:,} is far from small", (0.1, 0.6)
    )


def _real(call: Called) -> Said | None:
    of = call.one("0", "a", "x")
    if of is None or not is_array(of, "float", "int", "uint") or prod(of.shape) < MANY:
        return None
    return Said("transforms real numbers as complex ones", (0.5, 0.8))


def _distances(call: Called) -> Said | None:
    a, b = call.one("0", "XA", "X"), call.one("1", "XB")
    metric = call.one("2", "metric") or (b if call.called.endswith("pdist") else None)
    pairs = call.called.endswith("pdist")
    if a is None or len(a.shape) != 2 or (not pairs and (b is None or len(b.shape) != 2)):
        return None
    rows = a.shape[0] * (a.shape[0] // 2 if pairs else b.shape[0] if b else 0)
    if metric is not None and metric.kind == "function" and rows >= MANY:
        return Said(f"calls Python for each of {rows:,} pairs", (0.002, 0.1))
    text = "euclidean" if metric is None else metric.text
    if pairs or text not in ("euclidean", "sqeuclidean", "cosine") or a.shape[1] < 32:
        return None
    if rows * a.shape[1] < 1000 * MANY:
        return None
    return Said(
        f"takes {a.shape[1]:,} differences for each of {rows:,} pairs, without the BLAS library",
        (0.15, 0.5),
    )


def _one_point(call: Called) -> Said | None:
    x = call.one("0", "x", "r") if "query" in call.called else call.one("0", "x")
    scalar = x is not None and x.kind in ("float", "int", "scalar")
    if "query" in call.called:
        scalar = is_array(x) and x is not None and len(x.shape) == 1
        scalar = scalar or (
            x is not None and x.kind in ("list", "tuple") and x.of in ("float", "int")
        )
    return Said("is asked for one point at a time", (0.03, 0.4)) if scalar else None


def _formula(call: Called) -> Said | None:
    x, scales = call.one("0", "x"), ("norm_gen", "uniform_gen", "expon_gen", "laplace_gen")
    if x is None or not any(one in call.called for one in scales):
        return None
    least = 0.001 if numbers_in(x) < MANY else 0.15
    return Said("checks, masks and copies its arguments in many passes", (least, 0.5))


def _rows_of_columns(call: Called) -> Said | None:
    of, rows = call.one("self"), call.one("0")
    by_rows = rows is not None and rows.kind in ("array", "int", "list", "scalar")
    if of is None or "csc_" not in of.kind or not by_rows:
        return None
    return Said("looks for rows in a sparse matrix that is kept by columns", (0.1, 0.5))


_SIGNAL = r"^scipy\.signal\b.*\b"
SCIENCE = (
    Way(
        r"^numpy\..*\b(convolve|correlate)$",
        _transform,
        "Convolve by Fourier transforms of overlapping parts",
        "scipy.signal.oaconvolve(x, taps)  # for correlate: taps[::-1]",
    ),
    Way(
        _SIGNAL + r"lfilter$",
        _long_filter,
        "A filter without feedback is a convolution: do it by Fourier transforms",
        "scipy.signal.oaconvolve(x, taps, axes=-1)[..., : x.shape[-1]]",
    ),
    Way(
        r"^scipy\.(signal|ndimage)\b.*\b(convolve2d|correlate2d|convolve|correlate)$",
        _planes,
        "Convolve by Fourier transforms; where the weights are a product of two vectors, by each",
        "scipy.signal.fftconvolve(image, weights, mode='same')",
    ),
    Way(
        r"^scipy\.ndimage\b.*\bgeneric_filter1?d?$",
        _python_for_pixels,
        "Take the filter of its own (uniform_filter, median_filter), or windows as an array",
        "np.lib.stride_tricks.sliding_window_view(x, (k, k))  # then reduce its last axes",
    ),
    Way(
        r"^(numpy|scipy)\.fft\b.*\b(fft|ifft|rfft|irfft)$",
        _length,
        "Pad to a length of small primes, or cut to one",
        "n = scipy.fft.next_fast_len(len(x), real=True)  # np.fft.rfft(x, n)",
        always=False,
    ),
    Way(
        r"^(numpy|scipy)\.fft\b.*\b(fft|fft2|fftn)$",
        _real,
        "Transform them as what they are, half of the answer follows from the other",
        "np.fft.rfft(x)  # rfft2, rfftn; irfft back",
        always=False,
    ),
    Way(
        r"^scipy\.spatial\.distance\b.*\b(cdist|pdist)$",
        _distances,
        "Take a metric by its name, or squares and one product of matrices",
        "(a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T  # squared distances",
        always=False,
    ),
    Way(
        r"(KDTree\.query|BallTree\.query|^numpy\.interp|interp1d\.__call__)$",
        _one_point,
        "Ask for all points in one call",
        "tree.query(points)  # np.interp(xs, at, values)",
        always=False,
    ),
    Way(
        r"^scipy\.stats\b.*\.(pdf|logpdf|cdf|logcdf|sf|ppf)$",
        _formula,
        "Write the formula of that distribution on arrays; of the normal one scipy.special.ndtr"
        " and ndtri",
        "np.exp(-0.5 * ((x - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))",
    ),
    Way(
        r"^scipy\.sparse\b.*\.(__getitem__|getrow)$",
        _rows_of_columns,
        "Keep it by rows",
        "m = m.tocsr()  # once",
    ),
)
