"""How far work is from what the machine can do: ceilings, rooflines, hardware counters."""
