"""A kernel as a module of LLVM IR: its thread function, what that calls, and the loops over threads.

Owns: the text around the thread function, and compiling it. Does not own: running blocks (grid.py).

    i32 @blocks(launch, params, shared, frames, first, last)    blocks of threads that never meet, one after the other
    i32 @step(launch, params, shared, frames, first, last, states, back)    threads of a block, to where each waits next
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from dataclasses import dataclass
from typing import Any

from proofgrad.backends.ptx.emulator.access import ACCESS, ENTRY_BYTES, QUEUE_ENTRIES, QUEUE_HEAD
from proofgrad.backends.ptx.emulator.convert import CONVERT
from proofgrad.backends.ptx.emulator.function import DONE, FAULT, FRAME, GIVEN, RANGES, Function
from proofgrad.backends.ptx.emulator.matrices import MATRICES
from proofgrad.backends.ptx.emulator.meeting import MEETING
from proofgrad.backends.ptx.emulator.parse import Kernel, Label, Module, Refused, Variable, parse
from proofgrad.backends.ptx.emulator.registers import meets
from proofgrad.backends.ptx.emulator.scalar import SCALAR

OPERATIONS = {**SCALAR, **CONVERT, **ACCESS, **MEETING, **MATRICES}
DIFFER, ENDED = (
    -3,
    1 << 30,
)  # what @step says of threads that wait at several meetings; of which some have ended
_POINTERS, _WORD = [ctypes.c_void_p] * 4, ctypes.c_int32
_BLOCKS = ctypes.CFUNCTYPE(_WORD, *_POINTERS, ctypes.c_int64, ctypes.c_int64)
_STEP = ctypes.CFUNCTYPE(_WORD, *_POINTERS, _WORD, _WORD, ctypes.c_void_p, _WORD)
_FRAME_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel that can be run: its functions, and the memory that it needs."""

    name: str
    parameters: tuple[tuple[int, int], ...]  # offset and bytes of each
    parameter_bytes: int
    shared_bytes: int
    frame_bytes: int
    registers: int
    meetings: dict[int, int]  # the line of each
    run: Any  # `step` if its threads meet, else `blocks`
    library: object  # holds the code


@functools.lru_cache(maxsize=1024)
def compiled(text: str) -> dict[str, Compiled]:
    """Every kernel of PTX text. Raises: Refused."""
    module = parse(text)
    return {name: _compiled(module, kernel) for name, kernel in module.kernels.items()}


def _compiled(module: Module, kernel: Kernel) -> Compiled:
    function = Function(module, kernel, OPERATIONS)
    lines = function.text()
    frame_bytes = -(-function.frame_bytes // _FRAME_ALIGNMENT) * _FRAME_ALIGNMENT
    start = "\n".join([*_variables(module, kernel), *function.declarations.values()])
    body = "\n".join(lines)
    entry, loop, kind = ("step", STEP, _STEP) if function.points else ("blocks", BLOCKS, _BLOCKS)
    parts = [start, body, _usable(module, kernel, function, frame_bytes), loop]
    parts += [COPIES] if function.queue is not None else []
    ir = "\n".join(parts).replace(FRAME, str(frame_bytes))
    library = _linked(ir, entry, QUICK if _runs_straight(kernel) else THOROUGH)
    sizes = list(kernel.parameters.items())
    return Compiled(
        kernel.name,
        tuple([(function.parameters[name], nbytes) for name, nbytes in sizes]),
        sum([nbytes + 8 for _, nbytes in sizes]),
        function.shared_bytes,
        frame_bytes,
        len(kernel.registers),
        dict(function.points),
        kind(library[entry]),
        library,
    )


def _variables(module: Module, kernel: Kernel) -> list[str]:
    """Memory with a name that is neither shared nor of one thread."""
    found = []
    for variable in _in_memory(module, kernel):
        content = "".join([f"\\{byte:02X}" for byte in variable.data])
        kind = f'[{variable.nbytes} x i8] c"{content}"'
        found.append(f"@{_symbol(variable)} = internal global {kind}, align {variable.align}")
    return found


def _in_memory(module: Module, kernel: Kernel) -> list[Variable]:
    each = itertools.chain(module.variables.values(), kernel.variables.values())
    return [variable for variable in each if variable.space in ("global", "const")]


def _symbol(variable: Variable) -> str:
    return "".join([c if c.isalnum() or c == "_" else "_" for c in variable.name])


def _usable(module: Module, kernel: Kernel, function: Function, frame_bytes: int) -> str:
    """Whether an address may be used: of the memory that the launch was given, of variables, of shared memory."""
    texts = []
    for where in ("global", "shared", "any"):
        lines = [
            f"define internal i1 @usable.{where}(ptr %launch, ptr %shared, ptr %frame, i64 %address,"
            " i64 %bytes) alwaysinline nounwind {"
        ]
        total = "false"
        ranges: list[tuple[str, str]] = []
        if where != "shared":
            for k in range(len(kernel.parameters)):
                for end in (0, 1):
                    at = RANGES + 2 * k + end
                    lines.append(f"  %position{k}.{end} = getelementptr i64, ptr %launch, i64 {at}")
                    lines.append(f"  %bound{k}.{end} = load i64, ptr %position{k}.{end}")
                lines.append(f"  %size{k} = sub i64 %bound{k}.1, %bound{k}.0")
                ranges.append((f"%bound{k}.0", f"%size{k}"))
            for variable in _in_memory(module, kernel):
                name = _symbol(variable)
                lines.append(f"  %v.{name} = ptrtoint ptr @{name} to i64")
                ranges.append((f"%v.{name}", str(variable.nbytes)))
        if where != "global" and (function.shared_bytes or function.takes_shared):
            lines += [
                "  %s = ptrtoint ptr %shared to i64",
                f"  %given = getelementptr i64, ptr %launch, i64 {GIVEN}",
                "  %more = load i64, ptr %given",
                f"  %all = add i64 %more, {function.shared_bytes}",
            ]
            ranges.append(("%s", "%all"))
        if where == "any" and frame_bytes:
            lines.append("  %f = ptrtoint ptr %frame to i64")
            ranges.append(("%f", str(frame_bytes)))
        for k, (low, size) in enumerate(ranges):
            lines += [
                f"  %off{k} = sub i64 %address, {low}",
                f"  %in{k} = icmp ult i64 %off{k}, {size}",
                f"  %rest{k} = sub i64 {size}, %off{k}",
                f"  %fits{k} = icmp uge i64 %rest{k}, %bytes",
                f"  %both{k} = and i1 %in{k}, %fits{k}",
                f"  %any{k} = or i1 {total}, %both{k}",
            ]
            total = f"%any{k}"
        texts.append("\n".join([*lines, f"  ret i1 {total}", "}"]))
    return "\n".join(texts)


def _runs_straight(kernel: Kernel) -> bool:
    """Whether a thread runs each of its instructions once at most, so that compiling is most of the work."""
    seen: set[str] = set()
    for node in kernel.body:
        if isinstance(node, Label):
            seen.add(node.name)
        elif meets(node) or (node.parts[0] == "bra" and node.operands[0] in seen):
            return False
    return True


def _linked(ir: str, entry: str, level: int) -> Any:
    """A function of IR as code of the host. Raises: Refused, with LLVM's words: a mistake of the emulator."""
    import llvmlite.binding as llvm

    # what LLVM's own list of passes does beyond these costs more than all else
    machine = _host(level)
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        raise Refused(f"LLVM refuses what the emulator makes of it: {error}\n{ir}") from None
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    passes.run(module, llvm.create_pass_builder(machine, options))
    library = llvm.JITLibraryBuilder().add_object_img(bytes(machine.emit_object(module)))
    library.export_symbol(entry)
    return library.add_current_process().link(_jit(), f"ptx.{next(_NUMBERS)}")


QUICK, THOROUGH = (
    0,
    1,
)  # of LLVM's code generation: the first is five times as fast, its code half as fast
_NUMBERS = itertools.count()


@functools.cache
def _host(level: int) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        reloc="pic",
        codemodel="small",
        jit=False,
    )


@functools.cache
def _jit() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(use_jit_link=True)


BLOCKS = f"""
define i32 @blocks(ptr %launch, ptr %params, ptr %shared, ptr %frames, i64 %first, i64 %last) nounwind {{
entry:
  %nx = load i64, ptr %launch
  %ny_at = getelementptr i64, ptr %launch, i64 1
  %ny = load i64, ptr %ny_at
  %nz_at = getelementptr i64, ptr %launch, i64 2
  %nz = load i64, ptr %nz_at
  %nxy = mul i64 %nx, %ny
  %all = mul i64 %nxy, %nz
  %count = trunc i64 %all to i32
  %gx_at = getelementptr i64, ptr %launch, i64 3
  %gx = load i64, ptr %gx_at
  %gy_at = getelementptr i64, ptr %launch, i64 4
  %gy = load i64, ptr %gy_at
  %bx_at = getelementptr i64, ptr %launch, i64 6
  %by_at = getelementptr i64, ptr %launch, i64 7
  %bz_at = getelementptr i64, ptr %launch, i64 8
  br label %block
block:
  %b = phi i64 [ %first, %entry ], [ %b1, %next ]
  %bx = urem i64 %b, %gx
  %rows = udiv i64 %b, %gx
  %by = urem i64 %rows, %gy
  %bz = udiv i64 %rows, %gy
  store i64 %bx, ptr %bx_at
  store i64 %by, ptr %by_at
  store i64 %bz, ptr %bz_at
  br label %thread
thread:
  %t = phi i32 [ 0, %block ], [ %t1, %done ]
  %r = call i32 @thread(ptr %launch, ptr %params, ptr %shared, ptr %frames, ptr %frames, i32 %t, i32 0)
  %bad = icmp eq i32 %r, {FAULT}
  br i1 %bad, label %fault, label %done
done:
  %t1 = add i32 %t, 1
  %more = icmp ult i32 %t1, %count
  br i1 %more, label %thread, label %next
next:
  %b1 = add i64 %b, 1
  %more_blocks = icmp ult i64 %b1, %last
  br i1 %more_blocks, label %block, label %exit
exit:
  ret i32 {DONE}
fault:
  ret i32 {FAULT}
}}
"""

STEP = f"""
define i32 @step(ptr %launch, ptr %params, ptr %shared, ptr %frames, i32 %first, i32 %last, ptr %states, i32 %back) nounwind {{
entry:
  %turned = icmp ne i32 %back, 0
  %ends = add i32 %first, %last
  %end = sub i32 %ends, 1
  br label %loop
loop:
  %k = phi i32 [ %first, %entry ], [ %k1, %next ]
  %same = phi i32 [ {DONE}, %entry ], [ %same1, %next ]
  %ended = phi i32 [ 0, %entry ], [ %ended1, %next ]
  %mirror = sub i32 %end, %k
  %t = select i1 %turned, i32 %mirror, i32 %k
  %at = getelementptr i32, ptr %states, i32 %t
  %state = load i32, ptr %at
  %runs = icmp sge i32 %state, 0
  br i1 %runs, label %run, label %next
run:
  %t64 = zext i32 %t to i64
  %offset = mul i64 %t64, {FRAME}
  %frame = getelementptr i8, ptr %frames, i64 %offset
  %new = call i32 @thread(ptr %launch, ptr %params, ptr %shared, ptr %frames, ptr %frame, i32 %t, i32 %state)
  store i32 %new, ptr %at
  %bad = icmp eq i32 %new, {FAULT}
  br i1 %bad, label %fault, label %next
next:
  %now = phi i32 [ %state, %loop ], [ %new, %run ]
  %is_done = icmp slt i32 %now, 0
  %ended1 = select i1 %is_done, i32 {ENDED}, i32 %ended
  %none_yet = icmp eq i32 %same, {DONE}
  %agrees = icmp eq i32 %same, %now
  %fits = or i1 %none_yet, %agrees
  %joined = select i1 %fits, i32 %now, i32 {DIFFER}
  %same1 = select i1 %is_done, i32 %same, i32 %joined
  %k1 = add i32 %k, 1
  %more = icmp ult i32 %k1, %last
  br i1 %more, label %loop, label %exit
exit:
  %waits = icmp sgt i32 %same1, 0
  %with = or i32 %same1, %ended1
  %told = select i1 %waits, i32 %with, i32 %same1
  ret i32 %told
fault:
  ret i32 {FAULT}
}}
"""

# Of the copies of a thread that are under way: first, one behind the last, groups that were committed.
COPIES = f"""
define internal i1 @copies.begin(ptr %queue, i64 %target, i64 %source, i32 %bytes, i32 %given) nounwind {{
  %first = load i32, ptr %queue
  %last_at = getelementptr i32, ptr %queue, i64 1
  %last = load i32, ptr %last_at
  %group_at = getelementptr i32, ptr %queue, i64 2
  %group = load i32, ptr %group_at
  %used = sub i32 %last, %first
  %fits = icmp ult i32 %used, {QUEUE_ENTRIES}
  br i1 %fits, label %room, label %full
room:
  %entry = call ptr @copies.entry(ptr %queue, i32 %last)
  store i64 %target, ptr %entry
  %source_at = getelementptr i64, ptr %entry, i64 1
  store i64 %source, ptr %source_at
  %bytes_at = getelementptr i32, ptr %entry, i64 4
  store i32 %bytes, ptr %bytes_at
  %given_at = getelementptr i32, ptr %entry, i64 5
  store i32 %given, ptr %given_at
  %of_group = getelementptr i32, ptr %entry, i64 6
  store i32 %group, ptr %of_group
  %after = add i32 %last, 1
  store i32 %after, ptr %last_at
  %position = inttoptr i64 %target to ptr
  %n = zext i32 %bytes to i64
  call void @llvm.memset.p0.i64(ptr %position, i8 -91, i64 %n, i1 false)
  ret i1 true
full:
  ret i1 false
}}
define internal ptr @copies.entry(ptr %queue, i32 %number) nounwind {{
  %slot = urem i32 %number, {QUEUE_ENTRIES}
  %wide = zext i32 %slot to i64
  %offset = mul i64 %wide, {ENTRY_BYTES}
  %behind = add i64 %offset, {QUEUE_HEAD}
  %entry = getelementptr i8, ptr %queue, i64 %behind
  ret ptr %entry
}}
define internal void @copies.commit(ptr %queue) nounwind {{
  %group_at = getelementptr i32, ptr %queue, i64 2
  %group = load i32, ptr %group_at
  %after = add i32 %group, 1
  store i32 %after, ptr %group_at
  ret void
}}
define internal void @copies.wait(ptr %queue, i32 %under_way) nounwind {{
start:
  %last_at = getelementptr i32, ptr %queue, i64 1
  %last = load i32, ptr %last_at
  %group_at = getelementptr i32, ptr %queue, i64 2
  %group = load i32, ptr %group_at
  %below = sub i32 %group, %under_way
  br label %look
look:
  %first = load i32, ptr %queue
  %any = icmp ne i32 %first, %last
  br i1 %any, label %one, label %exit
one:
  %entry = call ptr @copies.entry(ptr %queue, i32 %first)
  %of_group_at = getelementptr i32, ptr %entry, i64 6
  %of_group = load i32, ptr %of_group_at
  %due = icmp slt i32 %of_group, %below
  br i1 %due, label %copy, label %exit
copy:
  %target = load i64, ptr %entry
  %source_at = getelementptr i64, ptr %entry, i64 1
  %source = load i64, ptr %source_at
  %bytes_at = getelementptr i32, ptr %entry, i64 4
  %bytes = load i32, ptr %bytes_at
  %given_at = getelementptr i32, ptr %entry, i64 5
  %given = load i32, ptr %given_at
  %to = inttoptr i64 %target to ptr
  %from = inttoptr i64 %source to ptr
  %n = zext i32 %bytes to i64
  %m = zext i32 %given to i64
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %n, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %m, i1 false)
  %after = add i32 %first, 1
  store i32 %after, ptr %queue
  br label %look
exit:
  ret void
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
