"""The paper, sections 3 and 5.4: the architecture and its loss, nothing of text or files."""
