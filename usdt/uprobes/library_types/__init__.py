"""Types of the C++ and Rust standard libraries, recognized by their members.

containers       strings and sequences: address and number of elements
smart_pointers   smart pointers and references: what they point to
member_access    the protocol by which both access members
"""
