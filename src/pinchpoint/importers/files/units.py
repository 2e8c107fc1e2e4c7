"""Units as people spell them: behind a number, in the name of a key, in the head of a column.

What is not spelled as one is unknown: no unit is guessed from what a key is about.
"""

from functools import lru_cache
from typing import NamedTuple

from pinchpoint.regex import regex


class Unit(NamedTuple):
    """A unit, what it measures, and how many of the family's first unit it is."""

    name: str
    family: str  # time, bytes, share, power, ... or the name of a rate
    scale: float = 1.0


UNKNOWN = Unit("", "")
_MOST_TEXTS = 4096  # that are remembered: names of a file are some hundred
_TIMES = (
    (1e-9, "ns", "nsec nsecs nanosecond nanoseconds"),
    (1e-6, "µs", "us usec usecs microsecond microseconds μs"),
    (1e-3, "ms", "msec msecs millisecond milliseconds millis"),
    (1.0, "s", "sec secs second seconds"),
    (60.0, "min", "mins minute minutes"),
    (3600.0, "h", "hr hrs hour hours"),
)
_SIZES = (
    (1.0, "bytes", "byte"),
    (1e3, "KB", "kb kB kilobytes"),
    (1e6, "MB", "mb megabytes"),
    (1e9, "GB", "gb gigabytes"),
    (1e12, "TB", "tb"),
    (2.0**10, "KiB", "kib"),
    (2.0**20, "MiB", "mib"),
    (2.0**30, "GiB", "gib"),
    (2.0**40, "TiB", "tib"),
)
_OTHERS = (
    Unit("%", "share", 1.0), Unit("W", "power", 1.0), Unit("mW", "power", 1e-3),
    Unit("kW", "power", 1e3), Unit("J", "energy", 1.0), Unit("mJ", "energy", 1e-3),
    Unit("kJ", "energy", 1e3), Unit("Wh", "energy", 3600.0), Unit("kWh", "energy", 3.6e6),
    Unit("kHz", "clock", 1e3),
    Unit("MHz", "clock", 1e6), Unit("GHz", "clock", 1e9), Unit("Hz", "clock", 1.0),
    Unit("°C", "temperature"),
    Unit("MFLOPs", "flops", 1e6), Unit("GFLOPs", "flops", 1e9), Unit("TFLOPs", "flops", 1e12),
    Unit("PFLOPs", "flops", 1e15), Unit("GFLOP/s", "flop/s", 1e9), Unit("TFLOP/s", "flop/s", 1e12),
    Unit("PFLOP/s", "flop/s", 1e15),
    Unit("frames/s", "frames/s"), Unit("queries/s", "queries/s"), Unit("requests/s", "requests/s"),
    Unit("tokens/s", "tokens/s"), Unit("bps", "bps"), Unit("Gbps", "bps", 1e9),
    Unit("Mbps", "bps", 1e6),
    Unit("Gbit/s", "bit/s", 1e9), Unit("Mbit/s", "bit/s", 1e6),
)  # fmt: skip
_SPELT = {
    "percent": "%", "pct": "%", "watt": "W", "watts": "W", "mw": "mW", "kw": "kW", "joule": "J",
    "joules": "J", "mj": "mJ", "kwh": "kWh", "khz": "kHz", "mhz": "MHz", "ghz": "GHz", "hz": "Hz",
    "celsius": "°C", "℃": "°C",
    # how many, or how many a second: it is used for both
    "mflops": "MFLOPs", "gflops": "GFLOPs", "tflops": "TFLOPs", "pflops": "PFLOPs",
    "gflop/s": "GFLOP/s",
    "tflop/s": "TFLOP/s", "pflop/s": "PFLOP/s", "tflops/s": "TFLOP/s", "gflops/s": "GFLOP/s",
    "fps": "frames/s", "qps": "queries/s", "rps": "requests/s", "tps": "tokens/s",
    "gbps": "Gbps", "mbps": "Mbps",  # bits, or bytes: it is used for both
}  # fmt: skip
_KNOWN = {unit.name: unit for unit in _OTHERS}
for _family, _rows in (("time", _TIMES), ("bytes", _SIZES)):
    for _scale, _name, _spellings in _rows:
        for _spelling in (_name, *_spellings.split()):
            _KNOWN[_spelling] = Unit(_name, _family, _scale)
for _spelling, _name in _SPELT.items():
    _KNOWN[_spelling] = _KNOWN[_name]
# What is counted, as programs abbreviate it.
_THINGS = {
    "tok": "tokens", "token": "tokens", "tokens": "tokens", "toks": "tokens", "t": "tokens",
    "it": "it", "its": "it", "iter": "it", "iters": "it", "iteration": "it", "iterations": "it",
    "img": "images", "imgs": "images", "image": "images", "images": "images",
    "sample": "samples", "samples": "samples", "seq": "sequences", "seqs": "sequences",
    "sequence": "sequences", "sequences": "sequences", "step": "steps", "steps": "steps",
    "frame": "frames", "frames": "frames", "req": "requests", "reqs": "requests",
    "request": "requests", "requests": "requests", "batch": "batches", "batches": "batches",
    "example": "examples", "examples": "examples", "ex": "examples", "episode": "episodes",
    "episodes": "episodes", "query": "queries", "queries": "queries", "infer": "inferences",
    "inference": "inferences", "inferences": "inferences", "op": "operations", "ops": "operations",
    "word": "words", "words": "words", "wps": "words", "item": "items", "items": "items",
    "call": "calls", "calls": "calls", "epoch": "epochs", "epochs": "epochs", "row": "rows",
    "rows": "rows", "event": "events", "events": "events", "transfers": "transfers", "env": "env",
    "file": "files", "files": "files", "update": "updates", "updates": "updates", "game": "games",
    "games": "games", "char": "characters", "chars": "characters", "run": "runs", "runs": "runs",
    "pixels": "pixels", "atoms": "atoms", "points": "points", "particles": "particles",
    "edges": "edges", "nodes": "nodes", "loops": "loops", "kernel": "kernels", "gpu": "GPU",
    "device": "device", "transactions": "transactions", "records": "records", "docs": "documents",
}  # fmt: skip
# One of them, spelt out, before seconds: step_sec is how long it took; tok_s is a rate.
_ONE = {"step", "iteration", "epoch", "batch", "episode", "update", "run", "call"}
_SECONDS = {"s", "sec", "secs", "second", "seconds"}
_PER = regex(
    r"([A-Za-zµμ]\w*?) ?(?:/| per |_per_) ?([A-Za-z]\w*)(?:/(gpu|device|chip|rank|node))?$", 2
)
_WORDS = regex(r"[A-Z]{2,}s?(?![a-z])|[A-Z]?[a-z]+|[A-Z]|[µμ]s|\d+")
_PERCENT = regex(r"(?:^|[\s(\[_\w])%(?:$|[)\]\s:])")
_GLUED = regex(r"\d[A-Za-z]+$")  # 2GB: the name of a size, not what is measured in GB
_IN_BRACKETS = regex(r"[(\[{]\s*(?:in )?([^()\[\]{}]{1,24}?)\s*[)\]}]")
# Letters that are no unit unless a word of the key says what is measured.
_ALONE = {
    "w": ("power", "W"), "c": ("temp", "°C"), "b": ("bytes", "bytes"), "j": ("energy", "J"),
}  # fmt: skip
# Between what is counted and "per": bytes_read.sum.per_second, tokens generated per second.
_DONE = {
    "sum", "avg", "mean", "min", "max", "median", "total", "count", "read", "written", "write",
    "sent", "received", "copied", "moved", "generated", "processed", "seen", "trained",
}  # fmt: skip
# Behind the unit: ttft_ms_median, gpu_mem_gb_max, latency_us_p99.
_OF_MANY = {"avg", "average", "mean", "median", "min", "max", "minimum", "maximum", "std", "stdev"}
_PERCENTILE = regex(r"[_\W]p\d{1,2}(?:[._]\d+)?$")
_NO_SUFFIX = {"min", "h", "second", "hour", "minute", "byte", "t"}  # min: the least of something


@lru_cache(maxsize=_MOST_TEXTS)
def unit_of(text: str) -> Unit:
    """The unit that a text is, such as ``ms``, ``tok/s``, ``s/it``, ``GiB``; else UNKNOWN."""
    said = text.strip().rstrip(".")
    if not said or len(said) > 30:
        return UNKNOWN
    if found := _KNOWN.get(said) or _KNOWN.get(said.lower()):
        return found
    return _rate(said)


def _rate(said: str) -> Unit:
    found = _PER.match(said)
    if found is None:
        return UNKNOWN
    top, below, each = found[1], found[2].lower(), found[3]
    more = f"/{each.lower()}" if each else ""
    if below in _SECONDS:
        known = _KNOWN.get(top) or _KNOWN.get(top.lower())
        if known and known.family == "bytes":
            return Unit(f"{known.name}/s{more}", f"bytes/s{more}", known.scale)
        if known and known.family == "flop/s":
            return known
        name = _THINGS.get(top.lower())
        return Unit(f"{name}/s{more}", f"{name}/s{more}") if name else UNKNOWN
    time = _KNOWN.get(top) or _KNOWN.get(top.lower())
    thing = _THINGS.get(below)
    if time and thing and time.family in ("time", "energy"):
        one = below.rstrip("s") if thing != "it" else "it"
        return Unit(f"{time.name}/{one}", f"{time.family}/{one}", time.scale)
    return UNKNOWN


# letters/s: things, of which there are several. Of time/s and durations/s it is the unit.
_COUNTED = regex(
    r"(?<![^\W_])(?!times|durations|latencies|delays|waits)([^\W\d_]{2,}[^\W\d_s]s)/s(?:ec)?$", 2
)


@lru_cache(maxsize=_MOST_TEXTS)
def unit_of_key(key: str) -> Unit:
    """What the name of a key or column says: ``step_time_ms``, ``lat (us)``, ``tokens_per_sec``."""
    for found in _IN_BRACKETS.finditer(key):
        if (unit := unit_of(found[1])) is not UNKNOWN:
            return unit
    if "%" in key and _PERCENT.search(key):
        return _KNOWN["%"]
    if _GLUED.search(key):
        return UNKNOWN
    if "/" in key and (unit := _rate(key.rpartition(" ")[2])) is not UNKNOWN:
        return unit
    words = [word.lower() for word in _WORDS.findall(_PERCENTILE.sub("", key))]
    if len(words) > 2 and words[-1] in _OF_MANY:
        words = words[:-1]
    if "per" in words[:-1]:
        return _per(words, words.index("per"))
    if any(words[at + 1 : at + 2] == ["of"] for at, word in enumerate(words) if word == "pct"):
        return _KNOWN["%"]  # pct_of_peak_sustained_elapsed
    unit = _last(words) if words else UNKNOWN
    if unit.name == "s" and (counted := _COUNTED.search(key)):
        rate = f"{counted[1].lower()}/s"
        return _KNOWN.get(rate) or Unit(rate, rate)
    return unit


def _per(words: list[str], at: int) -> Unit:
    """``tokens per sec``, ``samples per second per gpu``, ``time per iteration ms``."""
    more = words[at + 2 : at + 4]
    each = f"/{more[1]}" if more[:1] == ["per"] and len(more) > 1 else ""
    of = at - 1
    while of > 0 and words[of] in _DONE:
        of -= 1
    if of >= 0 and (unit := _rate(f"{words[of]}/{words[at + 1]}{each}")) is not UNKNOWN:
        return unit
    if words[at + 1] in _SECONDS:
        counted = words[of] if of >= 0 and words[of] not in _DONE else "1"  # of what nobody says
        return Unit(f"{counted}/s", f"{counted}/s")
    return _KNOWN.get(words[-1], UNKNOWN) if at + 2 < len(words) else UNKNOWN


def _last(words: list[str]) -> Unit:
    """The unit that the last word of a name is."""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in _SECONDS and before in _ONE:
        return _KNOWN["s"]
    if last in ("s", "sec", "second") and before:
        rate = _rate(f"{before}/s") if before != "t" else UNKNOWN
        return rate if rate is not UNKNOWN else _KNOWN["s"]
    if last in _ALONE and before:
        word, name = _ALONE[last]
        return _KNOWN[name] if any(each.startswith(word) for each in words) else UNKNOWN
    if last in _NO_SUFFIX or (not before and len(last) < 3):
        return UNKNOWN
    return _KNOWN.get(last, UNKNOWN)


__all__ = ["UNKNOWN", "Unit", "unit_of", "unit_of_key"]
