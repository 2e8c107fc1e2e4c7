"""Calls of libraries that are given the same again, as rules read them."""

from pinchpoint.diagnosis.evidence.called_lines import CalledLine
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.regex import regex
from pinchpoint.trace.run_samples import Given

FEWEST_COMPARED = 2  # pairs of calls: one pair may be alike by chance, or in one step
FEWEST_NUMBERS = 256  # and letters, that it is given: of fewer, keeping the answer wins little
LEFT = (0.0, 0.2)  # asking for what is kept, and making it anew now and then
# Libraries whose functions answer by what they are given alone; and what in them does not.
_COMPUTES = regex(
    r"^(numpy\.|scipy\.|pandas\.|sklearn\.|json\.loads$|_?pickle\.loads$|ast\.literal_eval$|zlib\."
    r"|gzip\.decompress$|bz2\.|lzma\.|base64\.|yaml\.|xml\.|re\.compile$|torch\.load$|torch\.serialization\.load$)"
)
_DOES_MORE = regex(
    r"random|\.(zeros|empty|ones|full)(_like)?$|\.(copy|array|ascontiguousarray|asfortranarray|sort"
    r"|fill|put|place|putmask|copyto|fill_diagonal|resize|partition|shuffle|rvs|sample|at)$"
    r"|\.(save|savez|savetxt|to_\w+|dump\w*|tofile|memmap|pop|append|extend|insert|update)$"
)
_READS = regex(r"\.(load|loadtxt|genfromtxt|fromfile|read_\w+|loadmat|imread)$")
# Of these the first argument alone is what takes the time: what is made of it is kept.
_PREPARED = (
    (
        regex(r"^scipy\.sparse\.linalg.*\bspsolve$"),
        "Factor the matrix once",
        "solve = scipy.sparse.linalg.factorized(a.tocsc())  # once; solve(b)",
    ),
    (
        regex(r"^(numpy|scipy)\.linalg.*\b(solve|lstsq)$"),
        "Factor the matrix once",
        "kept = scipy.linalg.lu_factor(a)  # once; scipy.linalg.lu_solve(kept, b)",
    ),
    (
        regex(r"^scipy\.interpolate.*\bgriddata$"),
        "Triangulate the points once",
        "mesh = scipy.spatial.Delaunay(points)  # once; LinearNDInterpolator(mesh, values)(at)",
    ),
)
_HINT = "kept = {}(...)  # once; copy it where it is written to"


def found_again(line: CalledLine) -> Found | None:
    """None where it is given something new, or is none of those; ``{time}`` stands for its time."""
    call = line.call
    if call.compared < FEWEST_COMPARED or not _COMPUTES.search(call.called):
        return None
    if _DOES_MORE.search(call.called) or call.one("out") is not None:
        return None
    known = next((one for one in _PREPARED if one[0].search(call.called)), None)
    given = call.given[:1] if known else tuple(g for g in call.given if g.name[:1] not in "[@")
    if not given or any(one.alike < call.compared for one in given):
        return None
    reads = _READS.search(call.called) is not None
    if not reads and max(map(_size, given)) < FEWEST_NUMBERS:
        return None
    name = call.called.rpartition(".")[2]
    what = _said(max(given, key=_size)) if not reads else "the same file, unchanged"
    does = "factors" if known and "Factor" in known[1] else "reads" if reads else "is given"
    return Found(
        summary=(
            f"{line.said} {does} {what} again each time, in all of {call.compared + 1} calls that"
            " were compared: {time}"
        ),
        evidence=(Evidence("calls compared with the one before", call.compared, "count"),),
        fix=known[1] if known else f"Keep what {name} answers, and make it anew when that changes",
        hint=known[2] if known else _HINT.format(name),
        confidence="high",
    )


def _size(given: Given) -> int:
    size = 1
    for n in given.shape:
        size *= n
    return size if given.shape else 0


def _said(given: Given) -> str:
    shape = " x ".join(f"{n:,}" for n in given.shape)
    letters = {"str": "letters", "bytes": "bytes"}.get(given.kind, given.dtype or given.kind)
    return f"the same {shape} {letters}"
