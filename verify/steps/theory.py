"""Why the goals are the laws: for all kernels, all sizes, all bodies.

Owns: this argument, and no code.

**Bodies.** A step does not look into the body of a loop. It writes terms for counters, everywhere (`substitute`), and
leaves all else as it was. So a body is a function of its counters of which nothing is known, and a law that holds for every such
function holds for every body. What a step does ask of a body (a coefficient, a mask, where a position lies) is a side
condition, decided at each use; the table in docs/steps.md names them.

**Output loops.** A nest of output loops is the set of its writes: a position and a value for each iteration. No two iterations
write one position; lowering makes kernels so. Then the order of iterations cannot be seen ("neighbours may be exchanged": any order
of finitely many comes of another by exchanging neighbours), and a law has to show that each iteration is made once.
That is a bijection between the iterations before and those after that are inside: `new` and `old` undo each other, and both
stay in range. As old iterations are in one-to-one correspondence to new ones, there is one writer of each position after, too:
every law keeps what it needs.

A store that has only some of the loops of a law would be made several times, with one value; so a step that puts loops together
asks that each store has all of them or none.

**Programs of tensors.** A step on a program writes nodes for nodes, everywhere. What an operation makes of values is a
function of which nothing is known, so what is equal below a node is equal at it, and a law has to speak of the nodes that it
exchanges alone: by induction over the graph, sources first, all others have the value that they had. An axis before and one
behind that of the law stand for all axes that it leaves as they are.

**Reductions.** The order of a reduction is not specified: its meaning is the bag of its leaves, the values of
its body, beside identities (verify/encode/loops.py). Two terms mean the same if each iteration is as often a leaf of the one
as of the other. So it is enough to count, for one arbitrary iteration x: the identity counts 0, a leaf f(c) counts 1
if c is x, and combining adds. This is sound for every operation that is associative and commutative with an identity, and
for every body: bags of iterations are the free commutative monoid, counting x is a homomorphism from it to the
whole numbers, two bags are equal where all these agree, and every such operation with every body is an image of it.
A loop is the sum of its iterations' counts, and what is claimed of a sum over c < n is shown for n = 0 and from n to n + 1. That
a loop takes in each iteration once, and under a mask those of the mask, turns a bijection into a law of reductions:
of the new iterations that are inside exactly one, new(x), is x.

**Positions.** A value that is written into memory and read back is itself if the position read is the position written, by no one
else. That is: digits, in range, have one position each, inside of the memory.

**Sizes.** Goals are about any positive whole numbers. Where a loop never runs, one of the new loops does not either (a test asks
each law), so both sides store nothing, and a reduction is its identity. The number of loops, digits or parts is not: each is
proved by itself up to the most that a step takes, and the step refuses more.

**What runs.** The functions of a law are run, on terms of the solver in place of numbers and index terms. Where one branches,
each branch is a case. So no goal is a copy of a law that could differ from it. What a step does around
its functions (which nodes it visits, which it masks) is the same for all laws, in `exchanged`, and run on every small kernel
by the tests.

**Arithmetic.** Index terms are mathematical integers, `//` and `%` round down, as here. That they are computed in words
that are wide enough is shown by bounds, for each kernel, when an index gets its width.
"""
