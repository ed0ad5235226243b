"""Benchmarks: what a learned width costs beside a fixed one. Ratios, measured in turns in one process."""
