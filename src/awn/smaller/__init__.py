"""Smaller networks from a trained one: truncation, compression, removal of units, plain modules."""
