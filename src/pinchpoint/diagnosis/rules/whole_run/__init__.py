"""What takes the time of a whole run, by looks at its threads; no recording is needed."""
