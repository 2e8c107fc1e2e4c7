"""What the machine is and what it does: the environment record, live samples.

This package runs beside, and partly inside, the user's program: it stays light.
"""
