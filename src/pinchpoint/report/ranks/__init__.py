"""What is said about the ranks of one job: the document, its building, its words."""
