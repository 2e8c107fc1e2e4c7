"""Causes in how a step gets its batch."""
