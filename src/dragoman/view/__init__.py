"""Pictures of what a model does and of how it learns."""
