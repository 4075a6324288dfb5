"""PTX run without a GPU, thread by thread, so that the real text and the real runtime can be tested anywhere.

parse.py: text -> instructions.  registers.py: which registers outlive a meeting of threads.  function.py and the files of
its instructions (scalar.py, convert.py, access.py, meeting.py): instructions -> LLVM IR of the host.  module.py: a kernel
as IR, with the loop over its threads.  matrices.py: products of matrix fragments.  grid.py: threads from meeting to
meeting.  driver.py: the calls of the CUDA driver, over host memory.

An instruction that is not known is refused with its line: none is skipped. What the emulator cannot tell is speed, and
whether NVIDIA's own compiler takes the text.
"""
