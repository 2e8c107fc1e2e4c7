"""Causes in the host waiting for the device."""
