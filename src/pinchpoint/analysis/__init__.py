"""Questions about a trace and their answers: one module a question, pure functions, no I/O."""
