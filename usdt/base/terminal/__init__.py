"""What people see on a terminal.

progress   one line about work that takes long, which erases itself
"""
