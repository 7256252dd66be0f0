"""Replacements of JAX's CPU operations whose results depend, to the bit, on operands and shapes alone.

By default the compiler chooses one of several kernels for a product. The choice depends on the CPU's features, its cache
sizes, and the code compiled around it. The compiler also orders the additions of a sum to suit the surrounding loop.
Importing this package replaces how JAX lowers products, convolutions and sums; models need no change. docs/numerics.md has
the measurements.
"""

from fred.portable import products as products
from fred.portable import sums as sums
