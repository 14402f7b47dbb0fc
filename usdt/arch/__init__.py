"""What the toolkit knows of CPUs. No module here asks the running system.

pt_regs             ``struct pt_regs`` of each CPU, as tracing programs see it
calling_convention  registers of integer arguments and results
locations           where a value is at a probe: register, memory, constant
operands/           operand syntax of USDT argument specs, one module per CPU
abi/                calling conventions for values of every type
stubs               functions that fire a probe, in machine code
"""
