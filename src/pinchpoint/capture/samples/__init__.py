"""Light samples of the whole run, beside the windows.

A window of a few steps misses what happens rarely. So one thread looks at the stacks of all Python
threads some fifty times a second, and every step is timed with what it waited for. Steps that are
far from typical keep the samples that fell into them; of all others only sums are kept. Memory and
the file stay small however long the run is.
"""
