"""A checkpoint: its rows, its pending windows, the effect of a changed plan on it, and the last run over it."""
