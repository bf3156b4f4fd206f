"""How a model learns (section 5)."""
