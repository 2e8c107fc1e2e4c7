"""Records a program that the user runs: hooks inside it, a launcher around it.

What runs inside the user's program is standard library only, never raises into it, and never
writes to its output. Data leaves the process as files of a run folder.
"""
