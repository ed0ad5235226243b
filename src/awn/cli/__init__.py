"""The `awn` command: parse options, call the library, print results.

Modules here import torch and the other rooms inside functions, so that `awn --help` is fast.
"""
