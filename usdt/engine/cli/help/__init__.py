"""What the commands say of themselves.

``topics`` has the topics of ``help``, and ``version`` what ``--version`` prints.
"""
