"""Causes in number formats, shapes and memory layouts of device work."""
