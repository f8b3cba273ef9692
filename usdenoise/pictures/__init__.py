"""Arrays to encoded pictures."""
