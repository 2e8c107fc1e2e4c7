"""Finds steps in a recording without markers, by what repeats in it.

Every candidate is a series of boundaries in time: starts of a repeated annotation, of a Python
function or module, graph launches, or a device operation that comes once a step. All are judged
by one question: cut at these boundaries, does every piece launch the same work? Layers of one
step repeat as well, but pieces cut at layers differ where a step begins and ends: names that
occur in few of the pieces count against a candidate.
"""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import issued
from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.steps.candidates import (
    FEWEST_LAUNCHES,
    LEAST_COVERAGE,
    LOADER,
    MOST_PIECES,
    Candidate,
    LaunchedWork,
    candidates,
    repeated_work,
)
from pinchpoint.analysis.steps.gradient_resets import accumulated_steps
from pinchpoint.analysis.steps.module_nesting import are_layers, joined_by_others, write_tokens
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, MemoryKind, Trace, once_per_trace

Times = NDArray[np.int64]

MOST_COUNTS = 5_000_000  # pieces times kinds of work: tens of megabytes
FEWEST_A_PIECE = 10  # without other evidence, fewer launches repeating are a loop inside a step
# Of a recording of ranges alone, which are few and long. Fewer rounds may be the layers of one
# pass: small models whose layers people mark have six (DistilBERT) to twelve (BERT, GPT-2).
FEWEST_ROUNDS_OF_RANGES = 16
FEWEST_PIECES = 3  # without other evidence, two alike halves may be chance
# More alike rounds than this are no layers, whatever is joined to them: the deepest language models
# have 126 (Llama 3.1 405B).
MOST_LAYERS = 128
# Fewer that send and fetch may be parts of a model that is kept on the host.
FEWEST_ROUNDS_OF_PROGRAMS = FEWEST_ROUNDS_OF_RANGES
FEWEST_KINDS_OF_MANY = 3  # copies, and two of kernels: around one kernel it is a loop in something
# Spans of one name that hold all work are calls of a step, even where steps differ (a save every
# few steps, a sequence that grows); layers never hold what comes before and after them.
NEARLY_ALL = 0.98
SAME_COUNT_RATIO = 0.1  # a name's count may differ by this much from its median count
LEAST_SCORE = 0.65  # below this, one window and no steps; chosen on recordings with hidden markers
NEARLY_AS_GOOD = 0.03  # scores this close are equal; the kind of evidence then decides

# How much each kind of evidence is trusted; a person's annotation outranks a pattern of names.
TRUST = {
    "optimizer": 1.0,
    "annotation": 1.0,
    "function": 0.97,
    "graph": 0.95,
    "sequence": 0.9,
    "mark": 0.9,
}

# How sure steps are that were found with each evidence, at LEAST_SCORE and at a score of 1: what
# benchmarks/step_confidence.py measured where markers were hidden.
CONFIDENCE = {
    "optimizer": (0.9, 0.98),
    "training": (0.85, 0.98),
    "annotation": (0.85, 0.98),
    "function": (0.75, 0.88),
    "graph": (0.85, 0.98),
    "sequence": (0.4, 0.9),
    "rounds": (0.25, 0.4),
}
# Names in backward passes and of optimizers; a forward pass registers what is done after a backward
# one. A pass without them may be one of several that a step makes: tokens of an answer, batches of
# an evaluation.
_OF_TRAINING = regex(
    r"multi_tensor_apply|adam|(?<!post)(?<!pre)backward|_bw_|dgrad|wgrad|autograd::engine",
    re.IGNORECASE,
)


@dataclass(frozen=True, eq=False)
class Spans:
    """Steps as spans of host time (device time where there is no host), sorted and disjoint."""

    start_ns: Times
    end_ns: Times
    number: Times
    basis: str
    confidence: float | None
    partial: NDArray[np.bool_] | None = None  # steps known to be incomplete, or longer than a step
    evidence: str = ""  # what the confidence was measured for, a key of CONFIDENCE


@dataclass(frozen=True, eq=False)
class Inference:
    """The steps found, or None and the reason."""

    spans: Spans | None
    reason: str


# A program's own steps of a second and a half, twice in the two seconds that runs record of JAX.
_LONGER = "Steps may be longer than the recording; a longer one: pinchpoint run --seconds 20"


def infer_steps(trace: Trace) -> Inference:
    """Steps by repetition, with how sure; or why there are none."""
    work = repeated_work(trace)
    if len(work.at_ns) < FEWEST_LAUNCHES:
        if not len(work.at_ns):
            return Inference(None, f"no markers, and no {work.unit}")
        few = _many(len(work.at_ns), work)
        longer = f". {_LONGER}" if trace.run is not None and compiled_for_cpu(trace) else ""
        return Inference(None, f"no markers, and only {few}: no repetition{longer}")
    best: tuple[float, Candidate] | None = None
    fewest, layers = MOST_PIECES, 0
    for candidate in candidates(trace, work):
        if best is not None and best[1].kind == "optimizer" != candidate.kind:
            break  # what the framework says outranks what merely repeats
        score = _score(trace, candidate, work)
        if score < LEAST_SCORE or are_layers(trace, candidate.start_ns):
            continue
        if _of_one_pass(trace, work, candidate):
            layers = max(layers, len(candidate.start_ns))
            continue
        if candidate.kind in ("annotation", "function") and candidate.end_ns is not None:
            fewest = min(fewest, len(candidate.start_ns))
        if best is None or _better(score, candidate, *best):
            best = score, candidate
    best = _of_whole_steps(trace, work, best) or best
    if best is None:
        return Inference(None, f"no markers, and {_why_none(trace, work, layers)}")
    score, found = best
    evidence = _evidence(trace, found, longer=2 * fewest <= len(found.start_ns))
    return Inference(_spans(found, work, evidence, score), "")


def _why_none(trace: Trace, work: LaunchedWork, layers: int) -> str:
    if layers:
        alone = f"what repeats {layers} times is joined by work that does not, without a pause"
        return f"{alone}: parts of one pass"
    return _short_rounds(trace, work) or f"nothing repeats regularly in {work.unit}"


def _of_one_pass(trace: Trace, work: LaunchedWork, candidate: Candidate) -> bool:
    """Whether a sequence is of layers. Of steps that train it is not: layers of a forward pass do
    not hold what a backward one runs."""
    if candidate.kind != "sequence" or _updates_weights(trace):
        return False
    if _more_than_layers(trace, candidate, work) or write_tokens(trace, candidate.start_ns):
        return False
    return joined_by_others(trace, work, candidate.start_ns)


class _Similarity(NamedTuple):
    """Mean over kinds of work of the share of pieces that have as many of it as the median piece;
    a kind that the median piece lacks counts as 0, or not at all."""

    of_all: float
    of_usual: float
    usual_kinds: int


def _more_than_layers(trace: Trace, candidate: Candidate, work: LaunchedWork) -> bool:
    """Whether these rounds, alike and nearly all that was launched, are those of a program and no
    loop inside of a step: the host takes part in each. It sends and fetches; or there are more
    rounds than models have layers, of several kinds of work, and in each it sends, fetches or waits
    for two kernels. A loop inside of a step may be as long, of kernels alone."""
    if candidate.kind != "sequence" or len(candidate.start_ns) < FEWEST_ROUNDS_OF_PROGRAMS:
        return False
    each, covered, _, same = _rounds(candidate, work)
    if each < 2 or min(covered, same.of_usual) < NEARLY_ALL:
        return False
    sends, fetches, waits = _host_in_rounds(trace, candidate.start_ns)
    if min(sends, fetches) >= NEARLY_ALL and each >= FEWEST_KINDS_OF_MANY <= same.usual_kinds:
        return True
    if len(candidate.start_ns) <= MOST_LAYERS:
        return False
    if each >= FEWEST_KINDS_OF_MANY <= same.usual_kinds:
        return max(sends, fetches, waits) >= NEARLY_ALL
    return waits >= NEARLY_ALL and same.usual_kinds > 1 and max(sends, fetches) == 0


_WAITS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


def _host_in_rounds(trace: Trace, start_ns: Times) -> tuple[float, float, float]:
    """Share of rounds that copy to the device, that copy from it, and in which the host waits."""
    ops, calls = trace.device_ops, trace.api_calls
    if ops is None:
        return 0.0, 0.0, 0.0
    at = issued(trace).start_ns

    def share(times: Times) -> float:
        which = np.searchsorted(start_ns, times, "right")
        counts = np.bincount(which, minlength=len(start_ns) + 1)[1:-1]  # the last may be cut
        return float((counts > 0).mean())

    of_host = (MemoryKind.PINNED, MemoryKind.PAGEABLE, MemoryKind.HOST)
    sends, fetches = (
        share(at[np.isin(ops.filled(side, 0), of_host)]) for side in ("from_memory", "to_memory")
    )
    waits = 0.0
    if calls is not None:
        waits = share(calls["start_ns"][np.isin(calls["kind"], _WAITS)])
    return sends, fetches, waits


def _rounds(candidate: Candidate, work: LaunchedWork) -> tuple[int, float, float, _Similarity]:
    """How much is launched in a usual round, and of what share of all rounds consist; the share of
    rounds with just as much, and how alike they are. Behind the last boundary one may be cut."""
    pieces = len(candidate.start_ns) - 1
    which = np.searchsorted(candidate.start_ns, work.at_ns, "right") - 1
    inside = (which >= 0) & (which < pieces)
    launched = np.bincount(which[inside], minlength=pieces)
    each = int(np.median(launched))
    covered = (np.count_nonzero(inside) + each) / len(work.at_ns)
    same = _similarity(which[inside], work.key[inside], pieces, work.kinds)
    return each, covered, np.count_nonzero(launched == each) / pieces, same


def _many(count: int, work: LaunchedWork) -> str:
    """``1 launch``, ``3 operators``."""
    return f"{count:,} {re.sub(r'(?<=ch)es$|s$', '', work.unit) if count == 1 else work.unit}"


def _short_rounds(trace: Trace, work: LaunchedWork) -> str:
    """What repeats regularly and is too little for a step: a loop of one kernel or a few."""
    for candidate in candidates(trace, work):
        if candidate.kind != "sequence" or len(candidate.start_ns) < FEWEST_PIECES:
            continue
        each, covered, alike, same = _rounds(candidate, work)
        if each >= FEWEST_A_PIECE or min(alike, covered) < NEARLY_ALL:
            continue
        if same.of_usual >= LEAST_SCORE:
            rounds = f"rounds of {_many(each, work)} repeat {len(candidate.start_ns):,} times"
            return f"{rounds}, too little to be taken for steps"
    return ""


def _evidence(trace: Trace, found: Candidate, *, longer: bool) -> str:
    """What speaks for the steps; ``longer`` where rounds of several of them repeat as well."""
    if found.kind == "optimizer" or _updates_weights(trace):
        return "optimizer" if found.kind == "optimizer" else "training"
    return "rounds" if longer else found.kind.replace("mark", "annotation")


@once_per_trace
def _updates_weights(trace: Trace) -> bool:
    tables = (trace.device_ops, trace.host_ops)
    used = {n for t in tables if t is not None for n in np.unique(t["name"]).tolist()}
    return any(_OF_TRAINING.search(trace.names[name]) for name in used)


def _confidence(evidence: str, score: float) -> float:
    least, most = CONFIDENCE[evidence]
    return round(least + (most - least) * (score - LEAST_SCORE) / (1 - LEAST_SCORE), 2)


def _of_whole_steps(
    trace: Trace, work: LaunchedWork, best: tuple[float, Candidate] | None
) -> tuple[float, Candidate] | None:
    """Steps of several backward passes, where what repeats most regularly is one of these."""
    ends = accumulated_steps(trace)
    if ends is None or (best is not None and len(best[1].start_ns) <= len(ends)):
        return None
    candidate = Candidate("sequence", "gradients are set to zero", ends, None)
    score = _score(trace, candidate, work)
    return (score, candidate) if score >= LEAST_SCORE else None


def _better(score: float, one: Candidate, best_score: float, other: Candidate) -> bool:
    if abs(score - best_score) > NEARLY_AS_GOOD:
        return score > best_score
    if TRUST[one.kind] != TRUST[other.kind]:
        return TRUST[one.kind] > TRUST[other.kind]
    if one.kind != other.kind and len(one.start_ns) == len(other.start_ns):
        return one.kind == "mark"  # which has a name
    return _held(one) > _held(other)  # the outer one; of phases of a step the first


def _held(candidate: Candidate) -> tuple[int, int]:
    start, end = candidate.start_ns, candidate.end_ns
    lasting = start[-1] - start[0] if end is None else (end - start).sum()
    return int(lasting), -int(start[0])


def _score(trace: Trace, candidate: Candidate, work: LaunchedWork) -> float:
    """0 to 1: sameness of the pieces, times their coverage, times trust in the evidence."""
    start, end = candidate.start_ns, candidate.end_ns
    pieces = len(start) if end is not None else len(start) - 1
    if pieces < 1:
        return 0.0
    which = np.searchsorted(start, work.at_ns, "right") - 1
    inside = (which >= 0) & (which < pieces)
    if end is not None:
        inside &= work.at_ns < end[which]
    same = _similarity(which[inside], work.key[inside], pieces, work.kinds)
    # What the framework marks need not be alike: the first iteration tries algorithms out.
    by_framework = candidate.kind == "optimizer" or candidate.name.startswith(LOADER)
    sameness = same.of_usual if by_framework else same.of_all
    repeats = len(start)
    coverage = float(inside.sum()) / len(work.at_ns)
    if work.of_ranges and repeats >= FEWEST_ROUNDS_OF_RANGES:
        # What is set up before the first round and taken down after the last is not of a round.
        kinds = len(np.unique(work.key[inside]))
        sameness = same.of_all * work.kinds / max(kinds, 1)
        coverage = max(coverage, _share_of_time(start, end, work))
    many = _more_than_layers(trace, candidate, work)
    if many:
        sameness = same.of_all * work.kinds / max(len(np.unique(work.key[inside])), 1)
    if end is None:  # the pieces before the first and after the last boundary are cut, not foreign
        coverage = min(1.0, coverage * repeats / pieces)
    if coverage < LEAST_COVERAGE or repeats < 2 or (work.of_ranges and _one_holds_most(start)):
        return 0.0
    least = 2 if many else FEWEST_A_PIECE
    if candidate.kind == "sequence" and (repeats < FEWEST_PIECES or inside.sum() < least * pieces):
        return 0.0
    if end is not None and coverage > NEARLY_ALL:
        sameness = (1 + sameness) / 2
    if candidate.counted:  # what else was recorded is no step, as its author says
        coverage = 1.0
    return sameness * coverage * TRUST[candidate.kind] * (1 - 1 / repeats**2)


def _one_holds_most(start: Times) -> bool:
    """Whether one round, and not the first, lasts longer than all others together: a loop inside of
    something, or the calls of a library. A first round may compile what the others run."""
    lasting = np.diff(start)[1:]
    return bool(2 * lasting.max(initial=0) > lasting.sum() > 0) and len(lasting) > 2


def _share_of_time(start: Times, end: Times | None, work: LaunchedWork) -> float:
    """How much of the time in which anything was recorded lies between the first and last start."""
    recorded = int(work.until_ns.max()) - int(work.at_ns[0])
    last = start[-1] if end is None else end[-1]
    return min(1.0, float(last - start[0]) / max(recorded, 1))


def _similarity(
    piece: NDArray[np.int64], key: NDArray[np.int64], pieces: int, kinds: int
) -> _Similarity:
    if not len(piece) or pieces * kinds > MOST_COUNTS:
        return _Similarity(0.0, 0.0, 0)
    counts = np.bincount(piece * kinds + key, minlength=pieces * kinds).reshape(pieces, kinds)
    usual = np.median(counts, axis=0)
    same = (np.abs(counts - usual) <= SAME_COUNT_RATIO * usual).mean(axis=0)[usual > 0]
    of_usual = float(same.mean()) if len(same) else 0.0
    return _Similarity(float(same.sum() / kinds), of_usual, len(same))


def _last_is_whole(start: Times, work: LaunchedWork) -> bool:
    """Whether the piece after the last boundary has just what the usual piece has."""
    which = np.searchsorted(start, work.at_ns, "right") - 1
    inside, pieces = which >= 0, len(start)
    if pieces * work.kinds > MOST_COUNTS:
        return False
    counts = np.bincount(
        which[inside] * work.kinds + work.key[inside], minlength=pieces * work.kinds
    )
    counts = counts.reshape(pieces, work.kinds)
    return bool(np.array_equal(counts[-1], np.median(counts[:-1], axis=0)))


def _end_of_work(start: Times, work: LaunchedWork) -> Times:
    """When the host was done with each piece: the time from then to the next mark is no work."""
    after = np.append(start[1:], np.iinfo(np.int64).max)
    last = np.maximum(np.searchsorted(work.at_ns, after, "left") - 1, 0)
    end: Times = np.minimum(np.maximum(work.until_ns[last], start + 1), after)
    return end


def _spans(candidate: Candidate, work: LaunchedWork, evidence: str, score: float) -> Spans:
    start, end = candidate.start_ns, candidate.end_ns
    ended = end is None and len(start) > 2 and start[-1] > work.at_ns[-1]
    if ended:  # as a loader is asked once more than it has batches
        start = start[:-1]
    open_end = end is None and not ended and not _last_is_whole(start, work)
    if end is None:
        end = _end_of_work(start, work)
    words = {
        "optimizer": f"the ends of {candidate.name!r}",
        "annotation": f"the annotation {candidate.name!r}",
        "mark": f"the annotation {candidate.name!r}",
        "function": f"the calls of {candidate.name!r}",
    }.get(candidate.kind, candidate.name)
    basis = f"no markers; {words}, {len(start)} times"
    number = np.arange(len(start), dtype=np.int64)
    partial = np.zeros(len(start), np.bool_)
    partial[-1] = open_end
    confidence = _confidence(evidence, score)
    return Spans(start, end, number, basis, confidence, partial, evidence)
