"""The full report as one HTML file with its timeline; the plain page; the notebook's."""
