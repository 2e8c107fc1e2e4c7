"""Causes in how tokens and requests are served."""
