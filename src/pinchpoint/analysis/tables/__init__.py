"""Who does what: kernels, operators, functions, modules, calls and copies, each as a table."""
