"""Text is split into tokens while the device waits.

## What it looks for
Tokenisers on the thread of the steps, inside the steps or inside a loader without workers: the
libraries that tokenise, functions whose name says that they do, and the program's own functions
that launch nothing and take strings apart themselves, dozens of times a call. What libraries do
with names of metrics and modules on their way is not that. Functions that also open files, decode
or write are left to the rules for that. Without Python stacks no tokeniser shows.

## Why it matters
A tokeniser written in Python works through a few hundred thousand characters a second, on one
core, and the device has nothing to do meanwhile. A faster device changes nothing.

## How to fix it
Tokenise the data once, before training, and store the numbers; or tokenise in the loader's worker
processes; or use a compiled tokeniser on whole batches.

## When to ignore it
Short prompts in inference.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import InputWork, input_work, nearest, parents, subtree_sums
from pinchpoint.analysis.host.frames import Owner, kernels_inside, owners
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named, outermost, without
from pinchpoint.diagnosis.evidence.writers import writing
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    parent="dataloader-starved",
    periodic=True,
    confirm='pinchpoint bench ab -- "python train.py" "python train_tokenised.py"',
)

# Calls of string functions in one call of a function: a batch of text takes hundreds, a name few.
FEWEST_SPLITS = 16
_SPLITS = regex(
    r"<built-in method (r?split|splitlines|lower|r?find|finditer|findall|match|fullmatch|sub"
    r"|r?partition|encode|translate) of (str|bytes|re\.Pattern) object"
)


def check(trace: Trace) -> Iterator[Found]:
    """Tokenisers on the thread of the steps."""
    known = input_work(trace) == InputWork.TOKENIZE
    spans = host_spans(trace, known | _takes_text_apart(trace), "tokenising")
    if spans is None:
        return
    yield Found(
        summary=(
            f"The training thread tokenises text{spans.where}, {spans.count:.3g} × and"
            f" {duration(spans.ns_per_step)} a step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        confidence="high" if known.any() else "medium",
        changes=without(trace, spans.rows),
        location=spans.place,
        fix="Tokenise once before training, or in the loader's workers",
        hint="tokens = dataset.map(tokenize, batched=True)  # once, stored",
    )


# Modules of Python's library that do with a string what their caller asked for.
_FOR_THEIR_CALLER = regex(r"^(?:\S*/)?(?:re(?:/__init__)?|string|textwrap|shlex)\.py\(")


def _takes_text_apart(trace: Trace) -> Mask:
    """Outermost functions of the program that launch nothing and are busy with strings."""
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.bool_)
    splits = named(trace, lambda name: _SPLITS.match(name) is not None)
    other = (input_work(trace) > 0) | writing(trace)
    chain = parents(host)
    splits &= _by_the_program(trace)
    quiet = (owners(trace) == Owner.USER) & (host["thread"] == main_thread(trace))
    quiet &= kernels_inside(trace) == 0
    quiet = outermost(trace, quiet)
    found: Mask = quiet & (subtree_sums(chain, splits.astype(np.int64)) >= FEWEST_SPLITS)
    found &= subtree_sums(chain, other.astype(np.int64)) == 0
    return found


def _by_the_program(trace: Trace) -> Mask:
    """Rows of ``host_ops`` that a function of the program calls itself."""
    host = trace.host_ops
    assert host is not None
    passing = named(trace, lambda name: _FOR_THEIR_CALLER.match(name) is not None)
    caller = nearest(parents(host), (owners(trace) > 0) & ~passing)
    found: Mask = np.append(owners(trace), 0)[caller] == Owner.USER
    return found
