"""Where a step's time goes: busy, idle and why, what the host did meanwhile."""
