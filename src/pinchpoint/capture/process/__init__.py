"""What runs inside the user's program, in each of its processes: standard library only."""
