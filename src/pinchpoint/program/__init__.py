"""The user's program where it is at hand: the lines that a finding names, and an edit of them."""
