"""Images of a filtered stack: power Doppler, directional power, velocity, and figures of merit."""
