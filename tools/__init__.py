"""Programs for developers of tidegate. Not shipped."""
