"""State: stores, frames, tables, and the index of the stored logs."""
