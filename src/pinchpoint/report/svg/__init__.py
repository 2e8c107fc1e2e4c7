"""Pictures as SVG; each escapes the names that it draws."""
