"""The documents that renderers draw and ``--json`` prints, declared field by field."""
