"""Events with stacks as profiles, from which :mod:`usdt.pictures` makes pictures.

formatter  one record → its stacks
counts     stacks of records, and of events in JSON → a profile
"""
