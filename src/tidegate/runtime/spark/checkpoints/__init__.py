"""A checkpoint: its rows, what waits in it, what a changed plan would mean for it, and the last run over it."""
