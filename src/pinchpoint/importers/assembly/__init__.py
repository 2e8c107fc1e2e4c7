"""From columns to a trace, where several formats do the same: lines, links, what is sound."""
