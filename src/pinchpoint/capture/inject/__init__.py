"""The folder that ``pinchpoint run`` puts on the program's Python path."""
