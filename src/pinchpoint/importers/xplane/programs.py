"""Where in the user's program the operations of compiled programs come from.

``/host:metadata`` keeps each program (``HloProto``) that ran. Field numbers are those of the
published ``hlo.proto`` and ``xla_data.proto``.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from pinchpoint.importers._wire import BYTES, VARINT, MalformedMessage, fields

_PROGRAM_MODULE = 1  # field of HloProto
_MODULE_NAME, _MODULE_COMPUTATION = 1, 3  # fields of HloModuleProto
_COMPUTATION_INSTRUCTION = 2  # field of HloComputationProto
_INSTRUCTION_NAME, _INSTRUCTION_METADATA = 1, 7  # fields of HloInstructionProto
_SCOPE, _FILE, _LINE = 2, 3, 4  # of OpMetadata: op_name, source_file, source_line

Places = Mapping[tuple[str, str], str]


def places_of(programs: Iterable[memoryview]) -> Places:
    """Of (module, operation) the line of the program, as ``model.py:41``, where that is known.

    A program that is damaged is left out: nothing but these lines is missing then.
    """
    found: dict[tuple[str, str], str] = {}
    for program in programs:
        with suppress(MalformedMessage):
            for module in _parts(program, _PROGRAM_MODULE):
                found |= _of_module(module)
    return found


def _of_module(module: memoryview) -> dict[tuple[str, str], str]:
    name = _text(module, _MODULE_NAME)
    return {
        (name, _text(instruction, _INSTRUCTION_NAME)): place
        for computation in _parts(module, _MODULE_COMPUTATION)
        for instruction in _parts(computation, _COMPUTATION_INSTRUCTION)
        for metadata in _parts(instruction, _INSTRUCTION_METADATA)
        if (place := _place(metadata))
    }


def _place(metadata: memoryview) -> str | None:
    line = next((f.integer for f in fields(metadata) if (f.number, f.kind) == (_LINE, VARINT)), 0)
    file = _text(metadata, _FILE)
    return f"{file}:{line}" if file and line else None


def _parts(message: memoryview, number: int) -> Iterator[memoryview]:
    return (f.bytes for f in fields(message) if (f.number, f.kind) == (number, BYTES))


def _text(message: memoryview, number: int) -> str:
    return next((f.text for f in fields(message) if (f.number, f.kind) == (number, BYTES)), "")
