"""``usdt fleet``: the same command on many machines, and one answer.

command      the command and its options
far_command  the command that follows ``--``: what each machine runs, and what its answer is
kept_app     the archive that machines get, kept between runs
run          one run: the machines, their answers, and what is shown
"""
