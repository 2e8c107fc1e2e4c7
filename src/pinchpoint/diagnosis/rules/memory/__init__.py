"""Causes in device memory: what holds it, and what getting it costs."""
