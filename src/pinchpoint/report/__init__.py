"""The one document, and one renderer a format."""
