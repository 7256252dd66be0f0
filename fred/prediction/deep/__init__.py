"""The deep Markov model of compute times [Krishnan et al. 2017; Teng & Wood 2018]: networks, training and filter."""

import warnings

warnings.filterwarnings("ignore", "IProgress not found")  # NumPyro's progress bars in notebooks; FRED shows none of them
