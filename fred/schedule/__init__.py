"""Schedules, through which timing determines arithmetic: the table of events, the replicas, and each gradient's examples."""
