"""What NCCL says about its calls in NVTX payloads: communicator, ranks, message sizes."""

import json
import struct
from collections.abc import Iterator

from pinchpoint.importers.nsys.database import Database, Strings

_HEADER = struct.Struct("<IIIIQQ")  # domain, -, schema, -, payload bytes, all bytes


def read_payloads(database: Database, strings: Strings) -> dict[int, str]:
    """Payloads of NVTX ranges as JSON text, by the row of NVTX_EVENTS that carries them.

    Older exports have JSON; newer ones the raw bytes, 32 bytes of header and then fields that
    ``NVTX_PAYLOAD_SCHEMA_ENTRIES`` describes.
    """
    if database.has("NVTX_EVENTS", "binaryData"):
        schemas = _schemas(database)
        blobs = enumerate(database.rows("NVTX_EVENTS", ("binaryData",))) if schemas else ()
        decoded = {
            row: json.dumps(fields, separators=(",", ":"))
            for row, (blob,) in blobs
            if isinstance(blob, bytes) and (fields := _decode(blob, schemas))
        }
        if decoded:
            return decoded
    return {row: text for row, text in _json_texts(database, strings) if text}


def _json_texts(database: Database, strings: Strings) -> Iterator[tuple[int, str]]:
    columns = [c for c in ("jsonText", "jsonTextId") if database.has("NVTX_EVENTS", c)]
    for row, values in enumerate(database.rows("NVTX_EVENTS", columns)):
        value = next((v for v in values if v is not None), None)
        yield row, strings.get(value, "") if isinstance(value, int) else str(value or "")


_FORMATS = {5: "<i", 18: "<Q", 22: "<Q"}  # type codes of nvToolsExtPayload.h that NCCL uses
_FIELDS = {
    "NCCL communicator ID": "communicator",
    "Message size [bytes]": "message_bytes",
    "No. of ranks": "ranks",
    "Rank": "rank",
    "CUDA device": "device",
    "Root": "root",
    "Peer rank": "peer",
}
Schemas = dict[tuple[int, int], list[tuple[str, str, int]]]


def _schemas(database: Database) -> Schemas:
    schemas: Schemas = {}
    rows = database.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES", ("domainId", "schemaId", "type", "name", "offset")
    )
    for domain, schema, code, name, offset in rows:
        if code in _FORMATS and isinstance(offset, int) and 0 <= offset < 4096:
            field = _FIELDS.get(str(name), str(name))
            entry = (field, _FORMATS[code], offset)
            fields = schemas.setdefault((domain, schema), [])
            if entry not in fields:  # the schemas are repeated for every process
                fields.append(entry)
    return schemas


def _decode(blob: bytes, schemas: Schemas) -> dict[str, int]:
    if len(blob) < _HEADER.size:
        return {}
    domain, _, schema, _, _, _ = _HEADER.unpack_from(blob)
    payload = blob[_HEADER.size :]
    return {
        field: struct.unpack_from(form, payload, offset)[0]
        for field, form, offset in schemas.get((domain, schema), ())
        if offset + struct.calcsize(form) <= len(payload)
    }
