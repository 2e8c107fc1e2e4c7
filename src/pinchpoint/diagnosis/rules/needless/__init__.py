"""Causes in work that the same result does not need."""
