"""Functions of programs and libraries as probes: ``uprobe:TARGET:FUNCTION[+OFFSET](ITEMS)``.

table      symbol tables of a file → symbols by name, also demangled, by pattern and by address
names      C++ and Rust names with and without parameters, as patterns mean them
functions  a probe's text → functions of a file, or in one line why there are none
arguments  arg0…, ``return``: where the CPU's calling convention has them
boundary   whether an instruction begins at an offset
misread    instructions that the kernel must not be asked to probe
asking     whether items need debug information
debug      a file's debug information; ``missing``: what to say where there is none
conventions/  where values of every type are at a function's beginning, by CPU; ``leaves``: what
           they are made of; ``trivial``: which objects C++ passes by address
parameters  parameters by name and type → arguments
usertypes  members of a program's types; ``containers``: texts and lists of C++ and Rust; ``smart``:
           pointers that are objects
requests   what the tracer asks: points to attach to
"""
