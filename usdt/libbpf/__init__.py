"""Attach programs of others: to any probe, and with libbpf's ``usdt.bpf.h`` to USDT probes.

program_links   ``usdt.attach_program``: one program, one probe of any kind
manager         fill libbpf's spec map and address map; attach programs that read them
usdt_spec       ``struct __bpf_usdt_spec``: the arguments of a site, encoded and decoded
resolve         a probe → its sites, with their specs
handles, links  programs and maps however they are given; links to sites of files
"""
