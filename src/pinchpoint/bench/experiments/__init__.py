"""One change at a time: turn a knob, measure, keep what was learned."""
