"""What a thread was at when it was looked at: told by its stack, whose innermost frame is first."""

from pinchpoint.analysis.host.frames import (
    NAMELESS,
    Owner,
    PythonFrame,
    frame_of,
    in_recorder,
    is_recorder,
    was_collecting,
)
from pinchpoint.analysis.time.host_activity import GapKind, meaning_of

# Waiting and hand-over say less than what is inside them, as in the accounting of a recording.
_WEAK = (GapKind.AUTOGRAD, GapKind.WAIT, GapKind.PROFILER)
_WRAPPERS = ("wrapper", "inner", "decorate_context")  # decorators of frameworks say nothing


def kind_of(frames: tuple[str, ...]) -> GapKind:
    """What a thread with this stack does, innermost frames first."""
    weak = GapKind.PYTHON
    if frames and was_collecting(frames[0]):
        return GapKind.GC
    if in_recorder(frames):
        return GapKind.PROFILER
    for name in frames:
        meaning = meaning_of(name)
        if not meaning:
            continue
        if GapKind(meaning) not in _WEAK:
            return GapKind(meaning)
        weak = GapKind(meaning) if weak is GapKind.PYTHON else weak
    return weak


def own_frame(frames: tuple[str, ...]) -> PythonFrame | None:
    """The innermost frame of the program's own code; else of a library. None while Pinchpoint
    itself records: that is no place of the program's."""
    if in_recorder(frames):
        return None
    spelt = [frame for name in frames if (frame := frame_of(name)) is not None]
    own = [frame for frame in spelt if frame.owner is Owner.USER]
    libraries = [frame for frame in spelt if frame.owner is Owner.LIBRARY]
    found = own or libraries
    first = next(iter(found), None)
    if first is None or first.function not in NAMELESS:
        return first
    # A comprehension is of the function that runs it; a lambda is called from anywhere.
    return next((f for f in found if f.function not in NAMELESS and f.file == first.file), first)


def own_functions(frames: tuple[str, ...]) -> dict[tuple[str, str], PythonFrame]:
    """Functions of the program on a stack, innermost first."""
    spelt = [frame_of(name) for name in frames]
    own = [f for f in spelt if f is not None and f.owner is Owner.USER]
    found: dict[tuple[str, str], PythonFrame] = {}
    for frame in own:
        if frame.function not in NAMELESS:
            found.setdefault((frame.file, frame.function), frame)
    return found


def names_a_call(doing: str) -> bool:
    """Whether what an innermost frame was at is a call by a name: ``np.sort()``, not ``[]``."""
    return doing.endswith("()") and doing != "()"


def called(frames: tuple[str, ...]) -> str | None:
    """What the program's own function had called: ``torch.save``, ``json.dump``."""
    inner: PythonFrame | None = None
    for name in frames:
        frame = frame_of(name)
        if frame is None or is_recorder(name):
            continue
        if frame.owner is not Owner.FRAMEWORK:
            break
        inner = frame
    else:
        return None
    if inner is None or inner.function.startswith("_") or inner.function in _WRAPPERS:
        return None
    module = inner.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{module}.{inner.function}".replace("torch.serialization.", "torch.")
