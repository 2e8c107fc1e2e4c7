"""What runs beside the user's program: starts it, asks for recordings, collects what it wrote."""
