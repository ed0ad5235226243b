"""Encoding: the columns of a table become the inputs of a network."""
