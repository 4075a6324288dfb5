"""Linear -> LLVM IR: the printer that the CPU, PTX and AMD share; each says in a dialect what is its own.

Owns: loops, memory, vectors and arithmetic as text of LLVM. Does not own: compiling and running it (backends/cpu, ptx, amdgpu).
"""
