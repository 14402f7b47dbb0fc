"""Knowledge of CPUs, as data and pure functions; nothing here inspects the running system.

pt_regs             ``struct pt_regs`` of each CPU, as tracing programs see it
register_names      names of registers; ``context_registers``: their locations by name
foreign_code        whether this machine's kernel can probe code built for a machine
calling_convention  registers of integer arguments and results
locations           where a value is at a probe: register, memory, constant
operands/           operand syntax of USDT argument specs, one module per CPU
abi/                calling conventions for values of every type
nops                long nops that kernels optimize probes on
stubs               functions that fire a probe, in machine code
"""
