"""Commands that start a program, watch one, or measure the machine."""
