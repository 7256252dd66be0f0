"""Study: what does a failure cost, by system?"""
