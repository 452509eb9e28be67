"""Rows: the columns of records, of stored rows and of results."""
