"""The blood map: power of the blood and of the noise in a filtered stack."""
