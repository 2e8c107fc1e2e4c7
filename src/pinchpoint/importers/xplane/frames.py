"""The index of frames that newer compiled programs have: by number, a line of the program."""

from collections.abc import Mapping

from pinchpoint.importers.xplane.fields import integer, messages, spelt, told_by
from pinchpoint.regex import regex

_FILES, _LOCATIONS, _FRAMES = 1, 3, 4  # of StackFrameIndexProto, whose entries count from 1
_AT_FILE, _AT_LINE = 1, 3  # of its FileLocation
_AT_LOCATION, _CALLED_FROM = 1, 2  # of its StackFrame
_INSTALLED = regex(r"(?:site|dist)-packages/")


def places_of_frames(message: bytes) -> dict[int, str]:
    """By number of a frame its file and line.

    The line of the program itself, where a library's function that it calls is further in.
    """
    index = told_by(message)
    files = [spelt(name) for name in messages(index, _FILES)]
    locations = [told_by(m) for m in messages(index, _LOCATIONS)]
    found, callers = {}, {}
    for number, frame in enumerate(map(told_by, messages(index, _FRAMES)), 1):
        callers[number] = integer(frame, _CALLED_FROM)
        at = integer(frame, _AT_LOCATION)
        location = locations[at - 1] if 0 < at <= len(locations) else {}
        file, line = integer(location, _AT_FILE), integer(location, _AT_LINE)
        if 0 < file <= len(files) and line:
            found[number] = f"{files[file - 1]}:{line}"
    return {number: _of_the_program(number, found, callers) for number in found}


def _of_the_program(frame: int, places: Mapping[int, str], callers: Mapping[int, int]) -> str:
    """The innermost place around a frame that no package is installed at; else its own."""
    seen, at = {0}, frame
    while at not in seen:
        seen.add(at)
        if at in places and not _INSTALLED.search(places[at]):
            return places[at]
        at = callers.get(at, 0)
    return places[frame]
