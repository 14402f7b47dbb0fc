"""The syntax of programs: text → tree.

source        the text, and errors that point into it
preprocessor  comments and directives → blanks; ``defines``: names that stand for a text;
              ``conditions``: those of #if
tokens        text → tokens; values of constants
grammar/      tokens → nodes
parser        text → tree: the parts of a program
macros        calls of macros → their bodies
library       functions that are written in the language itself
settings      the configuration of a program
hints         warnings about statements that never run, and the like
tree          the nodes of types, expressions and statements
program       the nodes of a program's parts: definitions, macros, functions, probes
"""
