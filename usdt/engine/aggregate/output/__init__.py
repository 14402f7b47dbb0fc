"""Formatters of results: text, JSON, heatmaps and SVG."""
