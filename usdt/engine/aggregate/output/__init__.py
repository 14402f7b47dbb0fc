"""Results as text, JSON, heatmaps and SVG."""
