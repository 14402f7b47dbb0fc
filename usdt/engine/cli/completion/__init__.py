"""Completion in bash, zsh and fish.

``values`` has what options and arguments are completed with, and ``shells`` the ways of the shells.
Nothing here is imported unless a shell asks.
"""
