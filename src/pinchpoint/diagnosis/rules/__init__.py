"""One folder a family, one module a root cause; the contract is ``diagnosis/rule.py``."""
