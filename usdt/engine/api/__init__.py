"""What the Python interfaces of both fronts share: events, sessions, aggregates as mappings."""
