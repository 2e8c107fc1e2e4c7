"""For other tools: one module a format, from a trace or its report to text or files."""
