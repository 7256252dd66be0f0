"""Questions that FRED was asked, each with its scenario, the program that makes its page, and the page in results/studies."""
