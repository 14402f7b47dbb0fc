"""Formatters of results: text, JSON, heatmaps, SVG, profiles of stacks."""
