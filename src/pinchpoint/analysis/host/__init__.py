"""What the host ran: frames, operators, launches, and the lines they come from."""
