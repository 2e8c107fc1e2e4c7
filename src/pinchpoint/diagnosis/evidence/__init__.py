"""What many rules ask of a trace: one subject a module."""
