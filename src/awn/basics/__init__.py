"""Vocabulary, argument checks, plain values, text tables and timing. Nothing here knows about layers."""
