"""Systems: a page for a paper or a close family, with its algorithms and its protocol. The folder is the registry."""
