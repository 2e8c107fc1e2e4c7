"""What a run folder knows besides the trace: machine, telemetry, samples."""
