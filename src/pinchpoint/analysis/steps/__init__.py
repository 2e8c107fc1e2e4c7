"""What a step is, how steps are found, and what falls into them."""
