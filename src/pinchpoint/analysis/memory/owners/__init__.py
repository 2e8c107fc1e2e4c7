"""Whose memory it is: parameters, gradients, states, activations, by stack and phase."""
