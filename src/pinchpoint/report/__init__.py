"""The one document, and one renderer a format."""

from pinchpoint.report.build import diagnose
from pinchpoint.report.document import Report, decode, encode

__all__ = ["Report", "decode", "diagnose", "encode"]
