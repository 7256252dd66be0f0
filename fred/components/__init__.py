"""What a scenario can name: the contract of everything named, the table of names, and users' own classes among them."""
