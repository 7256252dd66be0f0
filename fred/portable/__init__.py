"""How JAX computes on the CPU, so that bits follow from operands and shapes alone.

By default the compiler picks one of several kernels for a product, by the CPU's features, by its cache sizes, and by what else
is compiled beside it; and it adds up a sum in whatever order suits the loop that it becomes part of. Importing this package
replaces how JAX lowers products, convolutions and sums; models stay as they are. docs/numerics.md has the measurements.
"""

from fred.portable import convolutions as convolutions
from fred.portable import products as products
from fred.portable import sums as sums
