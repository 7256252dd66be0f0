"""Files and folders: safe reading of users' files, and the writing, locking and replacing of result folders."""
