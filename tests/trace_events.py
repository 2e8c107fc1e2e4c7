"""The rules of the Trace Event format that viewers rely on, as a check of a whole document.

Written from the format's documentation: phases and their required fields; slices of one track nest;
every arrow has both ends, inside a slice of their track.
"""

from collections import defaultdict

REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "C": {"name", "pid", "ts", "args"},
    "M": {"name", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}


def faults(document):
    """What is wrong, in sentences; empty for a sound file."""
    events = document["traceEvents"]
    found = [f"{e} lacks fields" for e in events if REQUIRED[e["ph"]] - set(e)]
    if found:
        return found
    tracks, arrows = defaultdict(list), defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
        elif event["ph"] in "sf":
            arrows[event["id"]].append(event)
    found += [f"{t}: {slice_}" for t, slices in tracks.items() for slice_ in _crossing(slices)]
    found += [f"{e}: no number" for e in events if e["ph"] == "C" and not _is_number(e)]
    return found + list(_loose(arrows, tracks))


def _is_number(event):
    return all(isinstance(value, int | float) for value in event["args"].values())


def _loose(arrows, tracks):
    starts = {track: {start for start, _ in slices} for track, slices in tracks.items()}
    for ends in arrows.values():
        if [end["ph"] for end in ends] != ["s", "f"]:
            yield f"{ends}: no arrow"
        for end in ends:
            if round(end["ts"] * 1000) not in starts.get((end["pid"], end["tid"]), ()):
                yield f"{end}: begins or ends at no slice"


def _crossing(slices):
    """Slices that begin inside another one and end after it."""
    stack = []
    for start, end in sorted(slices, key=lambda each: (each[0], -each[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            yield start, end
        stack.append(end)
