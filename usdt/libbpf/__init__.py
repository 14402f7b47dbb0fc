"""libbpf's USDT manager, byte for byte, for programs that others compiled.

usdt_spec   ``struct __bpf_usdt_spec``: a site's arguments
resolve     the sites of a probe with their specs
manager     spec and IP maps filled, programs attached
"""
