"""Causes in the machine: clocks, links, faults, other processes."""
