"""Quantities of one line: ``key=value``, ``key: value``, ``key value unit``, whoever prints it."""

import re
from typing import NamedTuple

from pinchpoint.importers.files.units import UNKNOWN, Unit, unit_of, unit_of_key
from pinchpoint.importers.program_logs._figures import parsed
from pinchpoint.regex import regex


class Quantity(NamedTuple):
    """A number of a line, and what the line calls it."""

    key: str
    value: float
    unit: Unit
    of: float | None = None  # 12/100: the hundred
    whole: bool = False  # printed without a point
    keyed: bool = True  # behind = or :, not in a sentence


class Place(NamedTuple):
    """A quantity of a line, and where its number stands."""

    begin: int
    end: int
    many: float
    one: Quantity


# A number that is no part of a name, a version, a time of day, a path; then how many there are.
_NUMBER = regex(
    # loss:0.13 is one, and s of s:12 loss:0.13; t.py:12 and host:8080 are none
    r"(?:(?<![\w.:/\\@#-])|(?<=\b[A-Za-z]:)(?=\d+ [A-Za-z_]+:-?\d)"
    r"|(?<=[A-Za-z_]:)(?=-?\d+\.\d+(?:[eE][-+]?\d+)?(?![\w.:]*\d)))"
    r"(?<!\d,)(?P<sign>-?)"
    r"(?P<n>(?:\d{1,3}(?:,\d{3})+|\d{1,18})(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?)"
    r"(?:\s?(?:/|of)\s?(?P<of>\d{1,12})(?![\d.:/]*[:/]))?"
    r"(?P<many>[kKM](?=\s?[A-Za-z]+\s?/\s?s))?"
    r"(?P<unit>\s\((?:s|ms|us|µs|ns|secs?|seconds|min|[KMGT]i?B)\)|\s{0,2}(?:%|[A-Za-zµμ°℃]+(?:\s?/\s?[A-Za-z]+(?:/[A-Za-z]+)?|\sper\s[A-Za-z]+)?))?"
)
_MANY = {"k": 1e3, "K": 1e3, "M": 1e6}
_SEPARATOR = regex(r"[\"']?\s*(?:=>|[:=])\s*[\"'\[(~≈$]?\s*$")
_STOP = regex(r"[,;|\t{}\"'<>]|\s{2,}|\s-+\s|\.\s|[)\]][\s,:]|[!?]\s|→|\.{3}|\]\[")
# Another field before it, that is empty or holds a word: tflops= step=s hbm=247GB, status = OK t=1s
_FIELD = regex(r"(?<=\w)(?: ?= ?[^\W\d]\w{0,15}|=%?)\s+(?=\S)")
_FREE_NUMBER = regex(r"(?<![\w.])[-+]?\d[\d.,]*(?![\w])")
# 1h 2m 3.4s, 0m3.4s, 1:02:03(.4) behind a key: seconds
_LONG_TIME = regex(
    r"(?<![\w:.])(?:(?:(?P<h>\d{1,5})h ?)?(?P<m>\d{1,3})m ?(?P<s>\d{1,2}(?:\.\d+)?)s\b"
    r"|(?:(?P<d>\d{1,3}) days?, )?(?P<h2>\d{1,4}):(?P<m2>\d\d):(?P<s2>\d\d(?:\.\d+)?)(?![\w:]))"
)
_LASTS = regex(r"(?:time|elapsed|duration|took|runtime|wall|total)\W{0,4}(?:was|is|of)?\W{0,4}$", 2)
_MOMENT = regex(r"start|end|begin|date|stamp|eta|remain", 2)
_NEAR_NAME = 24  # characters before a time that say of what it is
_BEHIND = " ,;|)]}\"'\t("  # what may stand behind a number without a unit
_EDGES = " \t:=,;|<>*\"'`~-–—•·>/\\{}#"
_LONGEST_SENTENCE = 240  # characters of a line; paragraphs are longer
_NEAR = 200  # characters before a number in which its name stands
_LONGEST_KEY = 48  # characters; a sentence is cut to its end
_MOST_WORDS = 7  # of such a sentence
_MOST = 200  # quantities of one line; a longer one lists data
_WORD = regex(r"[^\W\d_]")
OF = "n/N"  # the key of 12/100 that has no other


# Of lines that differ in their numbers only: which number is what.
Plans = dict[str, list[tuple[int, Quantity, float]]]
_MOST_PLANS = 2_000  # kinds of lines; programs print some hundred
_PLANNED = 10 * _MOST_PLANS  # numbers of all of them, at most, where all lines have as many


def quantities(text: str, plans: Plans | None = None) -> list[Quantity]:
    """All of a line, in its order; ``plans`` keeps what lines of this kind mean."""
    if ":" in text or "m" in text:
        text = _LONG_TIME.sub(_as_seconds, text)
    matches = list(_NUMBER.finditer(text))
    if not matches:
        return []
    if plans is None:
        return [one for _, one, _ in _planned(text, matches)]
    kind = _kind(text, matches)
    plan = plans.get(kind)
    if plan is None:
        plan = _planned(text, matches)
        if len(plans) < _MOST_PLANS and len(plans) * len(plan) < _PLANNED:
            plans[kind] = plan
        return [one for _, one, _ in plan]
    return [
        one._replace(value=value * many)
        for at, one, many in plan
        if (value := parsed(matches[at]["sign"] + matches[at]["n"])) is not None
    ]


def places(text: str) -> tuple[list[Place], list[tuple[int, int]]] | None:
    """Where the quantities of a line stand, and where all of its numbers do; None where a time in
    it is spelt in several numbers."""
    if _LONG_TIME.search(text):
        return None
    matches = list(_NUMBER.finditer(text))
    if len(matches) > _MOST:
        return None
    found = []
    for at, one, many in _planned(text, matches):
        found.append(Place(matches[at].start("sign"), matches[at].end("n"), many, one))
    return found, [match.span("n") for match in matches]


def _kind(text: str, matches: list[re.Match[str]]) -> str:
    """The line with its numbers left open, but for whether each is a whole one."""
    parts, last = [], 0
    for match in matches:
        start, end = match.span("n")
        parts.append(text[last:start])
        parts.append("0" if text[start:end].isdecimal() else "1")
        last = end
    parts.append(text[last:])
    return "\0".join(parts)


def _planned(text: str, matches: list[re.Match[str]]) -> list[tuple[int, Quantity, float]]:
    """Which of the numbers are quantities, and of how many each is one."""
    found: list[tuple[int, Quantity, float]] = []
    last, begin, before = 0, 0, 0  # the end of the last number; of the last quantities
    for at, match in enumerate(matches[:_MOST]):
        named_by = (before if text[last : match.start()].strip() == ":" else begin, last)
        one, end = _one(text, *named_by, match)
        if one is not None:
            found.append((at, one, _MANY.get(match["many"], 1.0)))
            # Loaded 1234 samples in 3.2 s: the first is a word of what names the second
            within = len(found) == 1 and one.unit is UNKNOWN and text[end : end + 1] == " "
            before, begin = begin, begin if within else end
        last = end
    return found


def _as_seconds(found: re.Match[str]) -> str:
    before = found.string[max(found.start() - _NEAR_NAME, 0) : found.start()]
    if found["m2"] and (_MOMENT.search(before) or not _LASTS.search(before)):
        return found[0]  # a time of day
    hours = int(found["h"] or found["h2"] or 0) + 24 * int(found["d"] or 0)
    minutes, seconds = int(found["m"] or found["m2"]), float(found["s"] or found["s2"])
    return f"{hours * 3600 + minutes * 60 + seconds:.9g} s"


def _one(text: str, begin: int, last: int, match: re.Match[str]) -> tuple[Quantity | None, int]:
    """The quantity of a number, if it is one, and where it ends."""
    end, unit = match.end(), UNKNOWN
    if match["unit"] is not None:
        unit, end = _unit(match)
        if unit is UNKNOWN and match["unit"][0] not in " \t":
            return None, match.end()  # 7B, 16x, 3rd: a name
    value = parsed(match["sign"] + match["n"])
    if value is None or not _ends(text, end):
        return None, end
    if match["many"]:
        value *= _MANY[match["many"]]
    key, keyed = _key(text, begin, last, match, unit)
    if not key:
        return None, end
    if unit is UNKNOWN:
        unit = unit_of_key(key)
    elif unit.family == "bytes" and _A_SECOND.search(key):  # Transfer/sec: 9 KB
        unit = Unit(f"{unit.name}/s", "bytes/s", unit.scale)
    of = parsed(match["of"]) if match["of"] else None
    if of is not None and "." in match["n"]:
        return None, end  # 2.3/4: marks
    whole = "." not in match["n"] and "e" not in match["n"].lower()
    return Quantity(key, value, unit, of, whole, keyed), end


def _key(text: str, begin: int, last: int, match: re.Match[str], unit: Unit) -> tuple[str, bool]:
    """What a line calls a number, empty where nothing does; and whether behind = or :."""
    start = match.start()
    before = text[max(last, start - _NEAR) : start]
    begin = max(begin, start - _NEAR)
    if separator := _SEPARATOR.search(before):
        # Epoch 3: 12 ms has its name before the number before
        key = _tail(before[: separator.start()]) or _sentence(text[begin:start])
        return key or (f"({unit.name})" if "/" in unit.name else ""), True
    if unit is UNKNOWN:
        return _segment(before) or (OF if match["of"] else ""), False
    key = _sentence(text[begin:start])
    before = text[max(start - _NEAR, 0) : start]
    if key and _says_nothing(key):
        wider = (_sentence(before), _last_words(before))
        told = (w for w in wider if not _says_nothing(w) and _measures(w, unit, match))
        key = next(told, key)
    elif key.endswith(" and"):  # took 3.2 GiB memory and 1.4 s
        key = _sentence(before).removesuffix(" and")
    return (key or f"({unit.name})") if _measures(key, unit, match) else "", False


def _says_nothing(key: str) -> bool:
    return all(word in _SMALL or word in _VERBS for word in key.lower().split())


def _measures(key: str, unit: Unit, match: re.Match[str]) -> bool:
    """Whether a number with a unit, in a sentence, is measured: ages and decades are not."""
    if "/" in unit.name:
        return True
    if not key or (_YEAR.fullmatch(match["n"]) and match["unit"] == "s"):
        return False
    words = key.split()
    if unit.family == "share":
        return len(words) <= 2 and words[-1].lower() not in _SMALL
    if len(match.string) > _LONGEST_SENTENCE:
        return False
    short = len(words) <= 2 and ("." in match["n"] or unit.name in ("ms", "µs", "ns"))
    return short or _MEASURES.search(key) is not None


def _unit(match: re.Match[str]) -> tuple[Unit, int]:
    """The longest text behind a number that is a unit, and where it ends."""
    said: str = match["unit"]
    at = match.start("unit")
    if said.endswith(")"):
        return unit_of(said.strip(" ()")), match.end("unit")
    for size in (len(said), *(found.start() for found in _BREAK.finditer(said) if found.start())):
        if (unit := unit_of(said[:size])) is not UNKNOWN:
            return unit, at + size
    return UNKNOWN, at


# What sentences measure with, beside all that they may count.
_MEASURES = regex(
    r"\b(?:took|takes?|time[ds]?|elapsed|latency|memory|throughput|speed|duration|seconds|finished"
    r"|complete[ds]?|done|load(?:ed|ing)?|mem|sav(?:ed|ing)|built|compil\w+|captur\w+|init\w*|peak"
    r"|allocated|reserved|usage|used|bandwidth|wall|spent|ran|runs?|mean|avg|average|median|min|max"
    r"|p\d\d|std|total|step|iter\w*|epoch|train\w*|eval\w*|forward|backward|inference|kernel|cpu"
    r"|gpu|cuda|startup|start|warm\w*|generated|processed|prefill|decode|overall|real|user|sys)\b",
    2,
)
_SMALL = frozenset((
    "in", "and", "is", "at", "the", "to", "of", "for", "with", "vs", "between", "same", "about",
    "than", "or", "by", "from", "up", "it", "was", "are", "a", "an",
))  # fmt: skip
_VERBS = frozenset(("took", "takes", "take", "taken", "finished", "done", "completed"))
_A_SECOND = regex(r"(?:/|[ _]per[ _])s(?:ec(?:ond)?)?$", 2)
_YEAR = regex(r"1[4-9]\d\d|20\d\d")
_BREAK = regex(r"\s?/|\sper\s")


def _ends(text: str, end: int) -> bool:
    """Whether a number or its unit ends here, not a name that begins with it."""
    behind = text[end : end + 1]
    return (
        not behind
        or behind in _BEHIND
        or (behind in ".:-+…/" and not text[end + 1 : end + 2].isalnum())
    )


def _tail(before: str) -> str:
    """The name behind the last thing that ends one; a unit in brackets belongs to it."""
    stripped = before.rstrip(" \t\"'")
    if fields := list(_FIELD.finditer(stripped)):
        stripped = stripped[fields[-1].end() :]
    stops = [found.end() for found in _STOP.finditer(stripped) if found.end() < len(stripped)]
    key = stripped[stops[-1] :] if stops else stripped
    if key.startswith("(") and stops:  # of what stands before it
        key = f"{stripped[stops[-2] if len(stops) > 1 else 0 : stops[-1]].strip()} {key}"
    return _clean(key)


def _segment(before: str) -> str:
    """``loss 2.3`` between delimiters: one or two words and the number, nothing else."""
    held = before.rstrip()
    stops = [found.end() for found in _STOP.finditer(held)]
    key = held[stops[-1] if stops else 0 :].strip(_EDGES + "()[]")
    words = key.split()
    if not 1 <= len(words) <= 2 or not all(map(_WORD.search, words)):
        return ""
    return key if before[-1:] in " \t[" and len(key) <= _LONGEST_KEY else ""


def _sentence(before: str) -> str:
    """The last words before a number that has a unit, other numbers left open."""
    held = before.rstrip()
    stops = [found.end() for found in _STOP.finditer(held)]
    words = held[stops[-1] if stops else 0 :].split()
    return _clean(" ".join(words[-_MOST_WORDS:]))


def _last_words(before: str) -> str:
    """The last words before a number, whatever stands between them."""
    return _clean(" ".join(before.rstrip(" \t:=").split()[-_MOST_WORDS:]))


def _clean(key: str) -> str:
    if key.lstrip().startswith("."):
        return ""  # the rest of a number: .12us
    key = _FREE_NUMBER.sub("#", key).strip(_EDGES)
    for open_, close in ("()", "[]"):
        if key.count(open_) != key.count(close):
            key = key.strip(open_ + close + " ")
        if key.count(open_) != key.count(close):
            key = key.rpartition(open_)[2].partition(close)[0]  # of a call, or a list
    if len(key) > _LONGEST_KEY:
        key = key[-_LONGEST_KEY:].partition(" ")[2]
    return key if _WORD.search(key) else ""


__all__ = ["OF", "Place", "Plans", "Quantity", "places", "quantities"]
