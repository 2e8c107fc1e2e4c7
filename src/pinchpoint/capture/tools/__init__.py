"""Tools of others beside the program: NVIDIA's profilers, and what stands in their way."""
