"""Looking inside: what waits, what is stored, totals of metrics."""
