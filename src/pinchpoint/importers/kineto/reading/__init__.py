"""From the bytes of a Chrome trace to its events: the fast scanner and the lenient path."""
