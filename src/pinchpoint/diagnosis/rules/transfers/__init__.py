"""Causes in copies between host and device."""
