"""What the command line and the Python API share: probe kinds and what has been attached.

registry   kinds of probes, and who provides them
started    what a provider has attached
"""
