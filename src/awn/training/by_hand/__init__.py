"""Training steps of an `AdaptiveMLP` without autograd: forward, backward and update written out over flat buffers.

A small step is mostly the cost of its calls, each a few microseconds. So there are few of them, all in place. NumPy
works on the same memory where there are few numbers: its calls cost less than torch's there.
"""
