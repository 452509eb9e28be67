"""The command line: `python -m tidegate`."""
