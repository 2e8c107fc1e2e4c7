"""One module a root cause. Files in this folder are found by listing it; see ``diagnosis/rule.py``."""
