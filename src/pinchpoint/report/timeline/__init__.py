"""The timeline of the page: lanes, marks and counters, packed for its script."""
