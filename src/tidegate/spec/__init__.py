"""What users say: frozen values, checked when built, that no engine knows about."""
