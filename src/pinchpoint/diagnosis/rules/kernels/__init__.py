"""Causes inside kernels that Nsight Compute profiled."""
