"""The compiled reader: optional, built by ``setup.py``; without it the plain one reads."""
