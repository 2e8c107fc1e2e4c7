"""Timing one function: warm-up to steady state, isolated and batched, hot and cold."""
