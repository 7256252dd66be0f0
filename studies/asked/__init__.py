"""Study: which clients should a server ask, and which should it wait for?"""
