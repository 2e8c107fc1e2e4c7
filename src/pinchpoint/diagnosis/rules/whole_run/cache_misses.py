"""A cache holds fewer results than are asked for in turn, so that it hardly ever has the one.

## What it looks for
A function of the program under `functools.lru_cache` whose cache was full when the run ended and
had missed at most of its calls, many times as many as it holds, while the function takes at least
a tenth of the run.

## Why it matters
The result that was not used for longest goes first. Where more inputs than it holds come in turn,
it is always the next one that has just gone: the cache costs its upkeep and saves nothing.

## How to fix it
A cache that holds all inputs that come again (`maxsize=None`, or their number), or turns that stay
with one input for longer.

## When to ignore it
Where inputs hardly ever come again: then leave the cache out.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.frames import Owner, owner_of
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import CacheUse

RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run alone",
)

MISSES_RATIO = 0.5  # of the calls: with more hits than misses it saves most of the work
TURNS = 4  # times as many calls as it holds: with fewer it is being filled


def check(trace: Trace) -> Iterator[Found | Small]:
    """Caches that miss, of functions that take a large part of the run."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return
    from pinchpoint.diagnosis.evidence.run_places import (
        SURE_RATIO,
        account_of,
        found_at,
        of_the_run,
    )

    places = {(p.at.file, p.at.function): p for p in account_of(trace).places if p.at}
    for cache in samples.caches:
        place = places.get((cache.file, cache.function))
        if place is None or not _thrashes(cache):
            continue
        if place.share.least_ratio < SURE_RATIO:
            yield Small(place.share.least_ratio, SURE_RATIO, "the run")
            continue
        calls, share = cache.hits + cache.misses, place.share
        yield found_at(
            trace,
            (place, share),
            f"{cache.function} ({cache.file}:{cache.line}) is cached, and yet {cache.misses:,} of"
            f" its {calls:,} calls compute anew, {of_the_run(share.ns, share.of_ns)}: the cache"
            f" holds {cache.most} results",
            fix="Let the cache hold all inputs that come again, or leave it out if none do",
            hint="@functools.lru_cache(maxsize=None)",
            confidence="high",
            more=(
                Evidence("calls that found their result", cache.hits, "count"),
                Evidence("calls that did not", cache.misses, "count"),
                Evidence("results that it holds", cache.held, f"of {cache.most}"),
            ),
        )


def _thrashes(cache: CacheUse) -> bool:
    calls = cache.hits + cache.misses
    full = 0 < cache.most <= cache.held
    missed = cache.misses >= MISSES_RATIO * calls and calls >= TURNS * cache.most
    return full and missed and owner_of(cache.file) is Owner.USER
