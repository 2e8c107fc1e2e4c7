"""From which size on is the GPU faster than the CPU: by operation, with and without transfers."""
