"""The Spark session and the machine: what tidegate needs of them, set on request, checked before a plan runs."""
