"""From graphs to values: schedule, plan, allocate, launch.

Owns: devices by name, memory of buffers, running plans, counters, reports, interrupts, canonical graphs. Does not own: making plans
(core/compile), replays (jit/).
"""
