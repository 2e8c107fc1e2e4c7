"""The program calls JAX operations one by one, outside of what `jax.jit` compiles.

## What it looks for
Looks at the main thread of a run, once its imports and compilations are left out, at which JAX ran
a single operation by itself, or differentiated or mapped a function outside of jit (`jax.grad` of a
step that is not compiled traces it at each call): at least a quarter of that time, surely. The
function of the program with most of it is named.

## Why it matters
Each operation is looked up, checked and called on its own, which takes tens of microseconds, and
its result is a new array: setting a few elements copies all the others. Under `jit` operations
become one program, and an array that is given away (`donate_argnums`) is changed in place.

## How to fix it
Put the function under `jax.jit`, with `donate_argnums` for arrays that it returns changed; or keep
in NumPy what is changed a little at a time. Where most of it is `jnp.array` of lists, each number
of which is looked at for its type, keep the numbers in NumPy arrays.

## When to ignore it
Where it runs once, in a short trial of a program that otherwise runs for hours.
"""

from collections import Counter
from collections.abc import Iterator

from pinchpoint.analysis.host.frames import PythonFrame
from pinchpoint.analysis.mean.stacks import kind_of, own_frame
from pinchpoint.analysis.mean.ways import imports
from pinchpoint.analysis.mean.whole_run import NS_PER_US, main_spent, share
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import Spent

RULE = Rule(
    needs=(),
    record=Record("a whole run: pinchpoint run python train.py"),
    looks_at="run",
)

LEAST_RATIO = 0.25  # of what is no start: setting up and a log line are in every program
FEWEST_LOOKS = 20  # at the place: a tenth of a second of a short run names it by accident
# Where JAX runs one operation, and its functions on arrays, each of which is one or a few. While a
# function is traced for jit, these come below the tracing.
_ALONE = regex(r"(^|/)jax/_src/(dispatch\.py\(\d+\): apply_primitive$|numpy/)")
_TRACED = regex(r"(^|/)jax/_src/interpreters/partial_eval\.py\(")


def check(trace: Trace) -> Iterator[Found | Small]:
    """The function with most of the operations that run by themselves."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return
    steady = [one for one in main_spent(samples) if not _starts(one)]
    alone = [one for one in steady if _is_alone(one)]
    us, looks = sum(one.us for one in alone), sum(one.looks for one in alone)
    whole_ns = NS_PER_US * sum(one.us for one in steady)
    took = share(us, steady, whole_ns, looks)
    if looks < FEWEST_LOOKS:
        return
    if took.least_ratio < LEAST_RATIO:
        yield Small(took.least_ratio, LEAST_RATIO, "the run after its start")
        return
    lines: dict[tuple[str, str], Counter[PythonFrame]] = {}
    for one in alone:
        if (at := own_frame(one.frames)) is not None:
            lines.setdefault((at.file, at.function), Counter())[at] += one.us
    most = max(lines.values(), key=Counter.total, default=Counter[PythonFrame]())
    place = next((at for at, _ in most.most_common(1)), None)
    where = None if place is None else Location(place.file, place.line, place.function)
    from pinchpoint.diagnosis.evidence.run_places import account_of, at_most, share_evidence

    total_ns = max(account_of(trace).total_ns, whole_ns)
    converts = 2 * sum(one.us for one in alone if _takes_a_list(one)) > us
    derives = 2 * sum(one.us for one in alone if _derives(one)) > us
    what = "JAX operations are called one by one, outside of jit,"
    if derives:
        what = "Functions are differentiated or mapped anew at each call, outside of jit,"
    elif converts:
        what = "Lists are made into arrays, each number by itself,"
    yield Found(
        summary=(
            f"{what} {100 * took.ratio:.0f} % of the"
            " time without imports and compiling" + (f", most of it in {where}" if where else "")
        ),
        evidence=(
            *share_evidence(took),
            Evidence("without imports and compiling", whole_ns, "ns"),
            *((Evidence(f"in {where}", NS_PER_US * most.total(), "ns"),) if where else ()),
        ),
        location=where,
        fix=_FIX_LISTS if converts else _FIX,
        hint=_HINT_LISTS if converts else _HINT,
        confirm=ANY_PROGRAM,
        consequence=at_most(took, total_ns),
        run_ratio=took.ns / max(total_ns, 1),
    )


_FIX = (
    "Put the function under jit, giving away the arrays that it changes, or keep in NumPy what is"
    " changed a little at a time"
)
_HINT = "@functools.partial(jax.jit, donate_argnums=0)"
_FIX_LISTS = "Keep the numbers in NumPy arrays, and make one array of JAX from one of these"
_HINT_LISTS = "x = jnp.asarray(rows[at])  # rows: a NumPy array"
_CONVERTS = "jax/_src/numpy/array_constructors.py"
_OF_EACH = regex(r"(^|/)jax/_src/(dtypes|tree_util|numpy/array_constructors)\.py\(")


def _takes_a_list(one: Spent) -> bool:
    """Whether ``jnp.array`` looks at each element of a list for its type."""
    inner = next((name for name in one.frames if "jax/" in name), "")
    return _OF_EACH.search(inner) is not None and any(_CONVERTS in name for name in one.frames)


def _is_alone(one: Spent) -> bool:
    if _derives(one):
        return True
    return any(map(_ALONE.search, one.frames)) and not any(map(_TRACED.search, one.frames))


# What the program calls of JAX to differentiate or to map; under jit it is called while the program
# is traced, so that the outermost function of JAX is then the one of jit (pjit.py).
_TRANSFORMS = regex(
    r"(^|/)jax/_src/api\.py\(\d+\): (value_and_grad|grad|_?vjp|_?jvp|linearize|vmap|jac\w+|hessian)"
)
_OF_JAX = regex(r"(^|/)jax/_src/(?!traceback_util\.py)")


def _derives(one: Spent) -> bool:
    """Whether a function is differentiated or mapped anew, outside of what jit compiles."""
    outermost = next((name for name in reversed(one.frames) if _OF_JAX.search(name)), "")
    return _TRANSFORMS.search(outermost) is not None


def _starts(one: Spent) -> bool:
    return imports(one.frames) or kind_of(one.frames) is GapKind.COMPILE
