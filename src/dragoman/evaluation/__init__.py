"""Scores of translations: against references, and of one system against another."""
