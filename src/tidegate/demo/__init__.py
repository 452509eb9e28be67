"""`python -m tidegate demo`: counts a year of departures from New York per airport and hour; each count leaves once."""
