"""Code that adds a hit to a map.

action         the action of a program at a hit
keys, values   code that builds a key, and adds to a value
"""
