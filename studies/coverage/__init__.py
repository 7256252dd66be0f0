"""How often intervals over seeds hold the truth: candidate methods, families, and the one that FRED uses."""
