"""JSON lines behind a header that tells where and when they were made.

header       the header, and a moment on two clocks
json_stream  an output file that begins with a header and repeats the clock
"""
