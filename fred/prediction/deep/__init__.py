"""The deep Markov model of run-times [Krishnan et al. 2017; Teng & Wood 2018]: its networks, its training, its filter."""

import warnings

warnings.filterwarnings("ignore", "IProgress not found")  # NumPyro's progress bars in notebooks; FRED shows none of them
