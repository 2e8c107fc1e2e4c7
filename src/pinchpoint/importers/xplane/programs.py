"""What compiled programs say of their operations: the line they come from, FLOPs and bytes.

``/host:metadata`` keeps each program that ran.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pinchpoint.importers.files.wire import MalformedMessage
from pinchpoint.importers.xplane.chosen import chosen
from pinchpoint.importers.xplane.fields import messages, text, told_by
from pinchpoint.importers.xplane.graphs import name_kernels_of_graphs
from pinchpoint.importers.xplane.hlo import (
    MODULE_NAME,
    NO_WORK,
    PROGRAM_MODULE,
    Instruction,
    Program,
)
from pinchpoint.importers.xplane.operations import LARGEST, said_of
from pinchpoint.importers.xplane.other_way import other_ways
from pinchpoint.importers.xplane.partly_read import partly_read
from pinchpoint.importers.xplane.rests_on import Look, gives, rests_on
from pinchpoint.importers.xplane.rewritten import Rewritten, rewritten
from pinchpoint.importers.xplane.shapes import DOUBLE
from pinchpoint.importers.xplane.slow_on_cpu import slow_on_cpu
from pinchpoint.importers.xplane.space import StoredProgram
from pinchpoint.importers.xplane.whole_jacobians import whole_jacobians
from pinchpoint.importers.xplane.widened import widened
from pinchpoint.regex import regex
from pinchpoint.trace.kinds import HOST_CALLBACK


def with_programs(rows: Sequence[dict[str, Any]], programs: Iterable[StoredProgram]) -> None:
    """Put to rows of ``compiled_ops`` what their programs tell and the recording does not.

    That is the line, FLOPs and bytes; what they compute with more digits than they were given,
    what they compute that nobody reads, or that one side of a condition alone reads; which of their
    products come to something shorter; what they write anew though it hardly changes; the argument
    that they copy; the loop that they are in; and the instruction, where a run of a program was
    recorded as one operation (a graph) and its kernels are as many, in the order that the program
    has. A program that is damaged is left out, and of programs with one name what they do not agree
    in, where rows do not say which of them ran.
    """
    mine: dict[str, dict[int | None, list[dict[str, Any]]]] = {}
    for row in rows:
        mine.setdefault(row["module"] or "", {}).setdefault(row.get("program"), []).append(row)
    found: dict[str, list[tuple[int | None, Program]]] = {}
    given: set[Look] | None = set()  # by any that ran; None: by one that cannot be read, too
    for stored in programs:
        try:
            for module in map(told_by, messages(told_by(bytes(stored.message)), PROGRAM_MODULE)):
                if (name := text(module, MODULE_NAME)) in mine:
                    program = Program(module)
                    found.setdefault(name, []).append((stored.id, program))
                    given = None if given is None else given | gives(program)
        except (MalformedMessage, RecursionError):
            given = None
    if not mine.keys() - {""} <= found.keys():
        given = None
    for name, same in found.items():
        for number, ran in mine[name].items():
            these = [program for known, program in same if known == number]
            with suppress(MalformedMessage, RecursionError):
                _tell(these or [program for _, program in same], ran, given)


def _tell(programs: Sequence[Program], rows: list[dict[str, Any]], given: set[Look] | None) -> None:
    if len(programs) == 1:
        order = [(one.name, one.kernel) for one in programs[0].launches]
        name_kernels_of_graphs(order, programs[0].by_name, rows)
    wide = widened(programs[0]) if len(programs) == 1 else {}
    choices = chosen(programs[0]) if len(programs) == 1 else {}
    anew = rewritten(programs[0]) if len(programs) == 1 else {}
    of_size = _told_by_size(programs[0], anew) if anew else {}
    _tell_what_is_read(programs, rows)
    _tell_arguments(programs, rows, given)
    _tell_other_ways(programs, rows)
    known: dict[str, _Facts] = {}
    for run in _runs(rows):
        op, took = run[0]["op"], sum(row["duration_ns"] for row in run)
        if op not in known:
            known[op] = _facts(programs, op)
        for row in run:
            share = row["duration_ns"] / took if took else 1 / len(run)
            _tell_row(row, known[op], share)
            # For a CPU XLA widens 16 bits itself.
            if op in wide and (row["device"] is not None or wide[op].dtype == "f64"):
                row["widened_at"], row["widened_to"] = wide[op].at, wide[op].dtype
                row["spared_bytes"] = round(wide[op].spared_bytes * share)
            if op in choices:
                row["chosen_at"], row["chosen_side"] = choices[op]
            told = anew.get(op)
            if told is None and op not in programs[0].by_name:
                told = of_size.get(row.get("copied_bytes") or 0)
            if told is not None:
                row["rewritten_at"] = told.at
                row["changed_ratio"], row["carried_ratio"] = told.changed_ratio, told.carried_ratio
                row["put_back_bytes"] = told.written_bytes


def _tell_arguments(
    programs: Sequence[Program], rows: Iterable[dict[str, Any]], given: set[Look] | None
) -> None:
    alone = rests_on(programs[0], given) if len(programs) == 1 and given is not None else {}
    for row in rows if alone else ():
        row["rests_on"] = alone.get(row["op"])


def _tell_what_is_read(programs: Sequence[Program], rows: Iterable[dict[str, Any]]) -> None:
    partly = partly_read(programs[0]) if len(programs) == 1 else {}
    for row in rows if partly else ():
        if (needed := partly.get(row["op"])) is not None:
            on_cpu = row["device"] is None
            row["read_at"], row["read_of"] = needed.at, needed.kind
            row["read_ratio"] = needed.on_cpu_ratio if on_cpu else needed.ratio


def _tell_other_ways(programs: Sequence[Program], rows: Iterable[dict[str, Any]]) -> None:
    one = programs[0] if len(programs) == 1 else None
    ways = {**other_ways(one), **whole_jacobians(one)} if one else {}
    on_cpu = slow_on_cpu(one) if one else {}
    for row in rows if ways or on_cpu else ():
        way = ways.get(row["op"]) or (on_cpu.get(row["op"]) if row["device"] is None else None)
        if way is not None:
            row["way"], row["way_ratio"], row["way_bytes"], row["way_at"] = way


def _told_by_size(program: Program, anew: Mapping[str, Rewritten]) -> dict[int, Rewritten]:
    """By what they copy, copies that a recorded graph does not tell by name: no other copy of the
    program is as large."""
    sizes: dict[int, list[Rewritten | None]] = {}
    fused = {n for one in program.by_id.values() if one.opcode == "fusion" for n in one.called}
    for number, inside in program.computations.items():
        for one in inside if number not in fused else ():
            if one.opcode == "copy":
                sizes.setdefault(one.shape.bytes, []).append(anew.get(one.name))
    return {
        size: told[0]
        for size, told in sizes.items()
        if told[0] is not None and all(told) and told[0].copied_bytes == size
    }


def _tell_row(row: dict[str, Any], facts: "_Facts", share: float) -> None:
    if facts.place and facts.place not in (row["source"] or ""):
        row["source"] = said_of(facts.place, row["source"])
    for what, amount in (("flops", facts.flops), ("bytes", facts.bytes)):
        row[what] = row[what] or (round(amount * share) if amount else None)
    row["category"] = row.get("category") or facts.category
    row["argument"], row["donated"] = facts.argument or (None, None)
    row["loop"], row["iterations"] = facts.loop, facts.iterations
    row["pulled_back"], row["fft_length"] = facts.pulled_back, facts.fft_length
    row["double"] = facts.double


def _runs(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Kernels after each other that are one run of one instruction: they share its work."""
    run: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["device"] or 0, row["start_ns"])):
        same = run and (row["op"], row["device"]) == (run[0]["op"], run[0]["device"])
        if not same or row.get("kernel") in [None, *(before["kernel"] for before in run)]:
            if run:
                yield run
            run = []
        run.append(row)
    if run:
        yield run


class _Facts(NamedTuple):
    place: str | None = None
    flops: int | None = None
    bytes: int | None = None
    argument: tuple[str, bool] | None = None
    loop: str | None = None
    iterations: int | None = None
    category: str | None = None
    pulled_back: bool = False
    fft_length: int | None = None
    double: bool = False


def _facts(programs: Sequence[Program], op: str) -> _Facts:
    said = [_said(program, one) for program in programs if (one := program.by_name.get(op))]
    if not said:
        return _Facts()
    return said[0] if len(set(said)) == 1 else _Facts(said[0].place)


def _said(program: Program, one: Instruction) -> _Facts:
    place, loop = program.place_of(one), program.loop_around(one)
    of_loop = (program.place_of(loop), loop.iterations) if loop else (None, None)
    pulled_back = _OF_A_JACOBIAN in one.scope
    if one.opcode in NO_WORK:
        return _Facts(place, None, None, None, *of_loop, pulled_back=pulled_back)
    work = _sane(program.flops(one)), _sane(program.bytes(one))
    category = HOST_CALLBACK if _CALLS_BACK.search(one.target) else None
    length = max(one.fft_lengths, default=None)
    argument = program.copied_argument(one)
    double = any(map(_is_double, (one, *program.operands(one))))
    return _Facts(place, *work, argument, *of_loop, category, pulled_back, length, double)


def _is_double(one: Instruction) -> bool:
    return any(part.type == DOUBLE and part.elements > 1 for part in one.shape.parts or [one.shape])


# The pass back through a function, for many rows at once: ``jax.jacrev`` has it, for those of the
# identity, and the gradient of each of many samples.
_OF_A_JACOBIAN = "vmap(transpose(jvp("


# Targets of ``jax.pure_callback``, ``io_callback`` and ``jax.debug.print``, by versions of JAX:
# xla_ffi_python_gpu_callback, xla_python_cpu_callback, xla_ffi_partitioned_python_gpu_callback.
_CALLS_BACK = regex(r"python_[a-z]+_callback")


def _sane(amount: int) -> int | None:
    return amount if 0 < amount < LARGEST else None
