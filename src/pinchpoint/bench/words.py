"""How much better or worse something became, in the same words everywhere.

Ratios come as the worsening: 0.25 is a time a quarter longer, or a throughput at which the same
work takes a quarter longer. What is said is the change of the figures that stand beside it, so that
a reader can check it: throughput from 100 to 80 is *20.0 % worse*, from 80 to 100 *25.0 % better*.
From twice on, percentages mislead (*50 % better* and *100 % worse* are the same step): then it is
*2.00 × better*, *2.00 × worse*, of times and of rates alike.
"""

MANY_TIMES = 2.0  # from here on a factor is easier to grasp than a percentage
ABSURD = 1000.0  # times; more says only that nothing is known


def in_words(worsening: float | None, better: str = "lower") -> str:
    """``48.0 % better``, ``3.1 % worse``, ``2.10 × worse``; ``the same``; ``-`` for None."""
    if worsening is None:
        return "-"
    size = amount(worsening, better)
    return "the same" if size == "0.0 %" else f"{size} {'worse' if worsening > 0 else 'better'}"


def amount(worsening: float, better: str = "lower") -> str:
    """How much, without saying in which direction: ``48.0 %``, ``2.10 ×``."""
    of_before = _of_before(worsening, better)
    times = max(of_before, 1 / of_before) if of_before > 0 else ABSURD
    if times >= ABSURD:
        return f"over {ABSURD:.0f} ×"
    if times >= MANY_TIMES:
        return f"{times:.3g} ×" if times >= 100 else f"{times:#.3g} ×"
    return f"{100 * abs(of_before - 1):.1f} %"


def range_in_words(interval: tuple[float, float] | None, better: str = "lower") -> str:
    """``9.6 to 44.6 % better``, ``2.1 % better to 3.0 % worse``; ``-`` for None."""
    if interval is None:
        return "-"
    low, high = sorted(interval)
    if low * high <= 0:
        return f"{in_words(low, better)} to {in_words(high, better)}"
    least, most = sorted((low, high), key=abs)
    said, unit = amount(least, better), amount(most, better)[-1]
    return f"{said.removesuffix(f' {unit}')} to {in_words(most, better)}"


def with_range(
    worsening: float, interval: tuple[float, float] | None, better: str = "lower"
) -> str:
    """``14.4 % worse (95 %: 11.6 to 17.2 % worse)``."""
    sure = f" (95 %: {range_in_words(interval, better)})" if interval else ""
    return in_words(worsening, better) + sure


def improved(worsening: float, interval: tuple[float, float] | None = None) -> str:
    """Of what is better for certain: ``improved 1.22 × (95 %: 1.15 to 1.30 ×)``: how many times as
    fast, or as many."""
    times = sorted(1 / (1 + ratio) for ratio in interval or () if ratio > -1)
    sure = f" (95 %: {' to '.join(f'{end:.2f}' for end in times)} ×)" if times else ""
    return f"improved {1 / (1 + worsening):.2f} ×{sure}"


def _of_before(worsening: float, better: str) -> float:
    """The value after as a part of the value before."""
    after = max(1 + worsening, 0.0)
    if better == "lower":
        return after
    return 1 / after if after else ABSURD
