"""Causes in many short kernels, each launched by the host."""
