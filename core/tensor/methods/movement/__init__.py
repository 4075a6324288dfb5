"""Movement: `Movement` (several Tensors as one, frames) on `Views` and, for the choice of a part, on `Operators`.

Owns: where elements stand. Does not own: the choice of elements by numbers in memory (indexing/).
"""
