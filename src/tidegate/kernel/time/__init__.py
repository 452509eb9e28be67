"""Time: panes, stream time, the slowest partition, idle input."""
