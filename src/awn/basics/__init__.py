"""Vocabulary and argument checks. Nothing here knows about layers."""
