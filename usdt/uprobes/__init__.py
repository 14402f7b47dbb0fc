"""Functions and lines as probes: ``uprobe:TARGET:FUNCTION``, ``uprobe:TARGET:SOURCE:LINE``.

provider            one probe: its functions, arguments and attach points
functions           a probe's text → functions of a file; name_patterns: mangled names;
                    instruction_boundary, unsafe_instructions: addresses that must not be probed
arguments           arg0…, ``return`` by the CPU's calling convention, without debug information
debug_info          a file's debug information; debug_package_hint: what to install for it
parameters          parameters by name and type → arguments; cxx_pass_by_reference: objects of C++
typed_arguments     typed values at known locations → arguments
places/             parameters and local variables at places inside functions
dwarf_types         members of a program's types
variables           global and static variables → arguments
library_types/      strings, sequences and smart pointers of C++ and Rust
"""
