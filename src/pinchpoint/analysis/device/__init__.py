"""What the device ran: kinds of kernels, their precision, collectives, activity."""
