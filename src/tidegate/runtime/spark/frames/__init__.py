"""DataFrames on their way in: the names, types and order of their columns."""
