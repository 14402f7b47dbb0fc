"""The ``usdt`` command."""
