"""Systems: a page for a paper or a close family, with its rows, its server and its protocol. The folder is the registry."""
