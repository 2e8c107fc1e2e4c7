"""The causal profile: what a step would be without each of its pieces, or with it at its limit."""
