"""Which work of a step gives what was there already, and which gives what nobody reads."""
