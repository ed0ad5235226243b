"""Preprocessing: columns of a table become numbers."""
