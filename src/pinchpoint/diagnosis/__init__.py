"""From a trace to named causes. ``rule.py`` is the contract, ``engine.py`` runs the rules."""
