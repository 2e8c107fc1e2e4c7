"""Causes in what the host does besides launching."""
