"""The tables of the document, from what the analyses found."""
