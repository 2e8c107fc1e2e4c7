"""What a report says of the whole run that a recording is of, by looks at its threads."""

import msgspec

from pinchpoint.diagnosis.finding import Location


class WayInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the main thread did with a part of the run; all of them add up to its time."""

    way: str  # stable id: run-interpreter, run-outside, run-files, …
    label: str  # for people
    ns: int


class RunPlaceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the program with all that it called, in the main thread."""

    location: Location | None = None  # the line with most of it; null: no code of the program
    ns: int  # of the run
    range_ns: tuple[int, int]  # least and most, 95 % sure
    looks: int  # that saw it
    ways: tuple[WayInfo, ...] = ()  # most time first
    inside: str | None = None  # the library's function that most of it is in
    call: str | None = None  # what most of it is at in the program's own line


class PhaseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the run before, between or after its steps."""

    phase: str  # before, after
    ns: int
    imports_ns: int | None = None  # of it
    places: tuple[RunPlaceInfo, ...] = ()  # most time first


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The run from its start to its end. Null: not known."""

    alone: bool = False  # nothing else was recorded: findings, parts and gains are of the whole run
    total_ns: int
    looks: int  # at the main thread
    every_ns: int  # between two of them
    cores: float | None = None  # that the program may use
    disturbed: tuple[str, ...] = ()  # what others did that makes steps longer, in sentences
    cpu_ns: int | None = None  # of all its processes on cores, those that ended included
    kernel_ns: int | None = None  # of that, of the main process in the kernel
    processes: int = 1  # of Python that were looked at
    threads: int = 1  # of Python in the main one
    steps: int = 0  # that were told from each other
    steps_ns: int | None = None  # of all of them, from the first to the last
    step_ns: int | None = None  # the typical one
    phases: tuple[PhaseInfo, ...] = ()  # what is not the steps, where there are some
    ways: tuple[WayInfo, ...] = ()  # most time first
    places: tuple[RunPlaceInfo, ...] = ()  # most time first, the first ones
    crew: str | None = None  # who does the work while the main thread waits: its 4 threads
    crew_places: tuple[RunPlaceInfo, ...] = ()  # of theirs, as parts of that wait
