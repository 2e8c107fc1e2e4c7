"""Readers: one module or package a format, each turning a file into a Trace."""
