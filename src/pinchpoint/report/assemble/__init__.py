"""How each document is built from what the analyses and the rules found."""
