"""The mean step: kinds of steps, exceptional ones, and what a change makes of the mean."""
