"""Programs loaded and attached, newest kernel interface first."""
