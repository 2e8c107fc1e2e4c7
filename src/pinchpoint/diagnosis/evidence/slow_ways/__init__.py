"""Calls of libraries that are slow for what they are given, with the quicker way.

Each way says what a call has to be given to be meant: classes, kinds, sizes, numbers and structure
that ``pinchpoint run`` read there. A name alone says nothing. What is left of its time was measured
on one thread of a server of 2023 (NumPy 2.4, SciPy 1.17, torch 2.13, pandas 3.1, Python 3.11); a
range spans the sizes and kinds that were tried, widened to twice as much.
"""
