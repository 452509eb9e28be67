"""Looking inside: waiting windows and rows, stored rows, totals of metrics."""
