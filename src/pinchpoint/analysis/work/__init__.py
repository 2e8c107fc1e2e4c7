"""What is computed: operators with their costs, chains, repeats, and what a step processes."""
