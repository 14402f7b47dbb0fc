"""What people type and see on a terminal.

click_import  click without the modules that it seldom needs
columns       columns that text takes, and text cut to them
look          the palette, when it is used, and the width of a terminal
own_modules   modules of the toolkit and of click, found in few steps
progress      one line about work that takes long, which erases itself
quick_exit    the end of a command without the last step of Python's end
"""
