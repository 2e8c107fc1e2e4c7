"""Logs of a machine's telemetry: one importer a format, found like those beside this folder."""
