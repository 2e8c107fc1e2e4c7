"""Causes in the choice of device work: more of it than needed, or not fused."""
