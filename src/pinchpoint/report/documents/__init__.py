"""The documents that renderers draw and ``--json`` prints, and how each is built from analyses."""
