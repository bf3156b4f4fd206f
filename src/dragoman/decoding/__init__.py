"""Decoding: from a source sentence to the translations a model finds most likely."""
