"""Files and folders: users' files opened with care, and where results come to be, held, exchanged and owned."""
