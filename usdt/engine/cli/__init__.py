"""What the commands of both fronts share: options, the running loop, aggregations."""
