"""Causes in what a program without a device computes."""
