"""Other ways to what an operator gives, tried on the program's own arguments."""
