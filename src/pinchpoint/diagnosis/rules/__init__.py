"""One module a root cause, found by listing this folder; the contract is ``diagnosis/rule.py``."""
