"""Training steps of an `AdaptiveMLP` without autograd: forward, backward and update written out over flat buffers."""
