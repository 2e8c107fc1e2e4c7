"""For programs that reason: short answers about recordings below one folder, read only."""
