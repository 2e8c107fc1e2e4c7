"""Causes in collectives, and in ranks that wait for each other."""
