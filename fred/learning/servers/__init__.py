"""Update rules: a file for each, or for several that share one."""
