"""Study: is outer momentum more than a larger outer step?"""
