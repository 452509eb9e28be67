"""`python -m tidegate demo`: a year of departures from New York, counted per airport and hour, each let out once."""
