"""From a name to bytes, for every format: where a file lies, how it is packed, what may be read."""
