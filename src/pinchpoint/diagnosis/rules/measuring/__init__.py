"""Causes for figures that a measurement gets wrong."""
