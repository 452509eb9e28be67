"""The needs of tidegate from the Spark session and the machine: set on request, checked before a plan runs."""
