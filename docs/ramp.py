"""A first tour, in the order of the guide. Run: DEBUG=2 python docs/ramp.py"""

from __future__ import annotations

from proofgrad import Device, Ops, Tensor, UOp, dtypes, explain
from proofgrad.renderer.cstyle import CStyleLanguage
from proofgrad.uop.ops import PatternMatcher, UPat, graph_rewrite

print("device:", Device.DEFAULT)

# A Tensor is a specification. Printing it runs nothing.
t = Tensor([1, 2, 3, 4])
print(t)
print("before:", t.uop.op, "  after:", t.realize().uop.op)

# Equal specifications are one node.
A, B = t * 4, t * 4
print("same object:", A is B, "  same node:", A.uop is B.uop)
print(A.tolist(), B.tolist())

# The graph keeps both additions; the kernel adds 7.
total = t + 3 + 4
print(total.uop)
print(explain(total))
print(CStyleLanguage().render_tensor(total))
print(total.tolist())

# Gradients are Tensors.
x = Tensor([2.0], requires_grad=True)
(gradient,) = (x**2 + 3 * x + 1).sum().gradient(x)
print("d(x*x + 3*x + 1)/dx at 2:", gradient.item())

# Nodes by hand, and a pattern of one's own. The compiler's rules are not of this kind: they are proven.
two = UOp(Ops.CONST, dtypes.int, arg=2)
fold = PatternMatcher([(UPat.cvar("a") + UPat.cvar("b"), lambda a, b: a.const_like(a.arg + b.arg))])
print(two + two, "becomes", graph_rewrite(two + two, fold))
