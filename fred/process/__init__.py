"""The process that FRED runs in: what decides its bits, what it remembers, what it tells, and how it is interrupted."""
