"""Programs: instructions written for plans."""
