"""Pictures as SVG; each escapes the names that it draws."""


def signed(picture: str) -> str:
    """A picture as a file of its own, which says whose it is: an earlier one may be replaced."""
    return f"{picture}\n<!-- pinchpoint -->\n"
