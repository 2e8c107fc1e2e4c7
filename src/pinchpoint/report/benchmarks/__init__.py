"""Benchmark results for people and machines that gate: text, Markdown, GitHub, JUnit.

Each kind of result becomes a ``Page`` (words and tables); each format draws a ``Page``.
"""
