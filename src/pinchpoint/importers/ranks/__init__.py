"""Which files are the ranks of one job, and where they lie."""
