"""Readers: one module or package a format, each turning a file into a Trace.

An importer is found by listing this folder and ``telemetry``. It declares ``FORMAT`` (one word for
people), ``FILES`` (usual names of the files, and what writes them), ``READS`` and ``NOT_READ``
(what of them is told, and what is not), ``claims(path, head) -> bool`` (a cheap look at the name
and the first bytes, which are already gunzipped) and ``read(path) -> Trace``. Exactly one importer
may claim a file.
"""

from pinchpoint.importers.open import formats, load

__all__ = ["formats", "load"]
