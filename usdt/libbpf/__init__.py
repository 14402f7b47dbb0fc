"""Attach programs compiled with libbpf's ``usdt.bpf.h``, as libbpf's USDT manager does.

usdt_spec   ``struct __bpf_usdt_spec``: the arguments of a site, encoded and decoded
resolve     a probe → its sites, with their specs
manager     fill the spec map and the address map; attach programs
"""
