"""What to send, and when: systems that send seldom, little or late, on links of four widths, with and without stragglers."""
