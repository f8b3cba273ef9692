"""Images and figures of merit that follow from a filtered stack."""
