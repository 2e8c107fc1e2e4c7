"""Drawing at random."""

from pinchpoint.diagnosis.evidence.slow_ways.way import (
    FEW_RATIO,
    MANY,
    Said,
    Way,
    count_of,
    is_array,
    is_false,
    numbers_in,
    stays,
    taken,
)
from pinchpoint.trace.run_samples import Called, Given

LEAST_ALL = 10_000  # things of which some are drawn: 10,000 take a tenth of a millisecond
_RANDOM = r"^numpy\.random\."
_OLD = _RANDOM + r".*RandomState\."


def _all(given: Given | None) -> int:
    if given is None:
        return 0
    return count_of(given) if given.kind == "int" else given.shape[0] if given.shape else 0


def _few_of_all(call: Called) -> Said | None:
    every, some = _all(call.one("0", "a")), count_of(call.one("1", "size"))
    weighted = call.one("3", "p")
    if not is_false(call.one("2", "replace")) or (weighted and weighted.kind != "None"):
        return None
    if every < LEAST_ALL or not 0 < some <= FEW_RATIO * every:
        return None
    return Said(f"permutes all of {every:,} to draw {some:,}", (0.002, 0.1))


def _first_of_a_permutation(call: Called) -> Said | None:
    every, some = _all(call.one("0", "x")), taken(call)
    if every < LEAST_ALL or not 0 < some <= FEW_RATIO * every:
        return None
    return Said(f"permutes all of {every:,}, of which {some:,} are taken", (0.002, 0.1))


def _weights_that_stay(call: Called) -> Said | None:
    weights, some = call.one("3", "p"), count_of(call.one("1", "size")) or 1
    if weights is None or numbers_in(weights) < LEAST_ALL or not stays(call, weights):
        return None
    if is_false(call.one("2", "replace")) or some > FEW_RATIO * numbers_in(weights):
        return None
    return Said(
        f"checks and adds up {numbers_in(weights):,} probabilities, the same each time, to draw"
        f" {some:,}",
        (0.02, 0.2),
    )


def _weights_that_change(call: Called) -> Said | None:
    weights, some = call.one("3", "p"), count_of(call.one("1", "size")) or 1
    if weights is None or numbers_in(weights) < LEAST_ALL or stays(call, weights):
        return None
    if is_false(call.one("2", "replace")) or some > FEW_RATIO * numbers_in(weights):
        return None
    return Said(
        f"checks and adds up all of {numbers_in(weights):,} probabilities to draw {some:,}",
        (0.02, 0.5),
    )


def _weights_of_python(call: Called) -> Said | None:
    weights, some = call.one("weights", "1"), count_of(call.one("k")) or 1
    if numbers_in(weights) < MANY or some > FEW_RATIO * numbers_in(weights):
        return None
    if not stays(call, weights):
        return None
    return Said(
        f"adds up {numbers_in(weights):,} weights, the same each time, for {some:,}", (0.05, 0.3)
    )


def _deque(call: Called) -> Said | None:
    of = call.one("0", "population", "seq")
    if of is None or of.kind != "collections.deque" or numbers_in(of) < MANY:
        return None
    # The way to the middle grows with it: half of 0.2 ms at 50,000, nearly all at a million.
    likely = min(25_000 / numbers_in(of), 1.0)
    return Said(
        f"goes to each through a deque of {numbers_in(of):,} from one of its ends",
        (min(0.3 * likely, 0.3), min(1.5 * likely, 0.7)),
    )


def _one_by_one(call: Called) -> Said | None:
    listed = call.one("0", "x", "population")
    if call.called.endswith("sample"):
        some = count_of(call.one("1", "k"))
        if some < MANY or listed is None or listed.kind == "collections.deque":
            return None
        return Said(f"draws {some:,} in Python, one by one", (0.02, 0.1))
    if numbers_in(listed) < MANY:
        return None
    return Said(f"swaps {numbers_in(listed):,} in Python, one by one", (0.03, 0.2))


def _rows(call: Called) -> Said | None:
    rows = call.one("0", "x")
    if rows is None or not is_array(rows) or len(rows.shape) < 2 or rows.shape[0] < MANY:
        return None
    return Said(f"swaps {rows.shape[0]:,} rows by slices made one by one", (0.05, 0.3))


def _frame(call: Called) -> Said | None:
    rows, some = call.one("self"), count_of(call.one("0", "n"))
    if rows is None or not rows.shape or not 0 < some <= FEW_RATIO * rows.shape[0]:
        return None
    state = call.one("random_state")
    if rows.shape[0] < LEAST_ALL or (state is not None and "Generator" in state.kind):
        return None
    return Said(f"permutes all of {rows.shape[0]:,} rows to draw {some:,}", (0.02, 0.2))


_GENERATOR = "Draw by np.random.default_rng(): its choice draws a few of many alone"
DRAWING = (
    Way(
        _OLD + "choice$",
        _few_of_all,
        _GENERATOR,
        "rng = np.random.default_rng(seed)  # once; rng.choice(n, k, replace=False)",
    ),
    Way(
        _RANDOM + r".*\.permutation$",
        _first_of_a_permutation,
        _GENERATOR,
        "rng.choice(n, k, replace=False)  # rng = np.random.default_rng(seed), once",
    ),
    Way(
        _RANDOM + r".*\.choice$",
        _weights_that_stay,
        "Add the probabilities up once, and search the sums for uniform numbers",
        "sums = p.cumsum()  # once; sums.searchsorted(rng.random(k) * sums[-1])",
    ),
    Way(
        _RANDOM + r".*\.choice$",
        _weights_that_change,
        "Where few of them change between draws, keep their sums in a tree, which needs log n steps"
        " for each; else search their running sums yourself, without the checks",
        "sums = p.cumsum(); sums.searchsorted(rng.random(k) * sums[-1])  # p need not add up to 1",
        always=False,
    ),
    Way(
        r"^random\.(Random|SystemRandom)\.choices$",
        _weights_of_python,
        "Add the weights up once, and give cum_weights",
        "sums = list(itertools.accumulate(weights))  # once; choices(x, cum_weights=sums, k=k)",
    ),
    Way(
        r"^random\.(Random|SystemRandom)\.(sample|choice|choices)$",
        _deque,
        "Keep what is drawn from in a list or an array that is written in a ring",
        "kept[n % size] = new  # a list; random.sample(kept, k)",
        always=False,
    ),
    Way(
        r"^random\.(Random|SystemRandom)\.(sample|shuffle)$",
        _one_by_one,
        "Draw the places by NumPy, all in one call",
        "order = rng.permutation(n)  # rng = np.random.default_rng(), once; rng.choice(n, k)",
    ),
    Way(
        _RANDOM + r".*\.shuffle$",
        _rows,
        "Permute the places, and take rows by these",
        "x = x[rng.permutation(len(x))]",
    ),
    Way(
        r"^pandas\..*(DataFrame|Series)\.sample$",
        _frame,
        "Give it a Generator, whose choice draws a few of many alone",
        "rng = np.random.default_rng(seed)  # once; frame.sample(k, random_state=rng)",
    ),
)
