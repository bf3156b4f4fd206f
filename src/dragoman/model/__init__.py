"""The paper, sections 3 and 5.4: the architecture and its loss, with nothing about text or files."""
