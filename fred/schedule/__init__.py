"""What timing tells arithmetic: the table of what happened, what replicas there are, which examples a gradient sees."""
