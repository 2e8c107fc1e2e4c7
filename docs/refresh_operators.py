"""Writes docs/reference/operators.md from the table of operators; a test compares."""

from pathlib import Path

from pinchpoint.diagnosis.evidence.operators import Known, elsewhere, preparing, shipped
from pinchpoint.diagnosis.evidence.other_ways import other_ways

PAGE = Path(__file__).parent / "reference/operators.md"

HEAD = """# Operators that are known to be slow

Where an operator of a recording is far from what the machine allows, a finding says why, if its
name or its kernel's is in this table: `src/pinchpoint/diagnosis/evidence/operators.json`, made
into this page by `docs/refresh_operators.py`. An entry is an operator or a kernel as recordings
spell it, what makes it slow, what to do instead, and where that is written. A test finds each entry
by its example. Being in the table makes nothing slow: the
[limit](../explanation/causal.md#the-limit) does.

## Entries of your own

Kernels of your own, or what your team knows, stand in a file of yours: `pinchpoint/operators.json`
in the data folder (`~/.local/share`), or the one that `PINCHPOINT_OPERATORS` names. Its entries
come first:

```json
{
  "operator": [
    {
      "operators": ["^mylib::ragged_sum"],
      "kernels": ["ragged_sum_v1"],
      "why": "the first version of the kernel gives a block to each row",
      "instead": "Call ragged_sum_v2, which sorts rows by length",
      "source": "our wiki, Kernels"
    }
  ]
}
```

`operators` and `kernels` are regular expressions, found anywhere in a name; where both are given,
both have to fit. None may repeat what repeats or chooses in itself, as `(a+|b)*` does: a search
may not end. `why` goes on after "because", `instead` begins a sentence. `"avoidable": true`
says that the same result can be had at the limit, and smaller gains are named; `"always": true`
that it holds where no limit is known; `"on_cpu": true` that it holds on CPUs too.

## The table

| as recorded | slow because | instead | source |
|---|---|---|---|
"""

OTHER_WAYS = """
## Other ways on CPUs

What bytes and FLOPs need says little of an operator that works on one number at a time. So it is
held against another way to the same result, `src/pinchpoint/diagnosis/evidence/other_ways.json`:
times are those of one thread of a server of 2023 (Sapphire Rapids, torch 2.13, NumPy 2.4), in
nanoseconds an element.

| operator | takes | slow because | instead | takes | only |
|---|---|---|---|---|---|
"""

PREPARING = """
## Calls that only prepare

What these make, a library keeps for the next time, and uses again in microseconds. Runs that spend
their time in them make it anew in each call (`prepared-again`).

| what | where | one takes at most | because | instead | source |
|---|---|---|---|---|---|
"""

RULES = """
## What no name tells

| what | found by | source |
|---|---|---|
"""

NOT_TOLD = """
## What a recording does not tell

| what | why not | source |
|---|---|---|
"""


def text() -> str:
    """The page as it should be."""
    rows = [_row(_names(e), e.why, e.instead, e.source) for e in shipped()]
    told = [_row(e.what, f"`{e.rule}`", e.source) for e in elsewhere() if e.rule]
    not_told = [_row(e.what, e.why_not or "", e.source) for e in elsewhere() if not e.rule]
    prepared = [
        _row(
            e.what,
            f"`{e.file}`: {', '.join(f'`{name}`' for name in (*e.functions, *e.calls))}",
            f"{e.longest_ms:g} ms",
            e.keeps,
            e.instead,
            e.source,
        )
        for e in preparing()
    ]
    ways = [
        _row(
            f"`{w.example}`",
            f"{w.operator_ns_per_element:g} ns",
            w.why,
            w.instead,
            f"{w.ns_per_element:g} ns",
            w.only_where or (f"on processors with {w.feature}" if w.feature else ""),
        )
        for w in other_ways()
    ]
    return "".join(
        (HEAD, *rows, OTHER_WAYS, *ways, PREPARING, *prepared, RULES, *told, NOT_TOLD, *not_told)
    )


def _names(entry: Known) -> str:
    return ", ".join(f"`{name}`" for name in entry.example if name)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
