"""Study: which low-communication system is best on which links, with equal and with unequal workers?"""
