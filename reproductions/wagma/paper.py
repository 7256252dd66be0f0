"""Every number of Li et al. 2021, section 5, that a run can be compared with. Figures 4, 5, 7, 8 and 10 print no others."""

from typing import NamedTuple


class Fact(NamedTuple):
    """One number in the paper's text."""

    section: str
    experiment: str
    run: str  # in the scenario
    workers: int
    value: float


FASTER = (  # WAGMA's throughput over that of others, figures 4, 7 and 10
    Fact("5.2", "figure 4", "local-sgd", 64, 1.25),
    Fact("5.2", "figure 4", "allreduce", 64, 1.26),
    Fact("5.2", "figure 4", "d-psgd", 64, 1.23),
    Fact("5.2", "figure 4", "sgp", 64, 1.25),
    Fact("5.2", "figure 4", "eager-sgd", 64, 1.13),
    Fact("5.2", "ablation 3", "wagma-global", 64, 1.24),
    Fact("5.4", "figure 10", "local-sgd", 1024, 2.33),
    Fact("5.4", "figure 10", "d-psgd", 1024, 1.88),
    Fact("5.4", "figure 10", "sgp", 1024, 2.10),
    Fact("5.3", "figure 7", "wagma-global", 16, 1.28),
)
UP_TO = Fact("5.2", "figure 4: WAGMA's largest speed-up", "", 256, 1.37)
TRAINING_TIME = (  # time to train, of WAGMA's, for the same number of epochs: figures 5 and 8
    Fact("5.2", "figure 5", "sgp", 64, 1.45),
    Fact("5.2", "figure 5", "local-sgd", 64, 1.54),
    Fact("5.2", "figure 5", "allreduce", 64, 1.63),
    Fact("5.3", "figure 8", "sgp-2", 16, 1.48),
    Fact("5.3", "figure 8", "ad-psgd", 16, 1.10),
    Fact("5.3", "figure 8", "local-sgd", 16, 1.39),
)
STEPS_PER_SECOND = (  # without delays, total batch 8,192
    Fact("5.2", "no delays", "local-sgd", 64, 1.52),
    Fact("5.2", "no delays", "wagma", 64, 1.55),
    Fact("5.2", "no delays", "ad-psgd", 64, 1.61),
    Fact("5.2", "no delays", "d-psgd", 64, 1.57),
    Fact("5.2", "no delays", "sgp", 64, 1.51),
)
MINUTES = (  # with delays, total batch 4,096; epochs of 1,281,167 images
    Fact("5.2", "figure 5: 130 epochs", "ad-psgd", 64, 238),
    Fact("5.2", "figure 5: 90 epochs, communicating twice in each step", "d-psgd-twice", 64, 410),
)
EPOCHS = {"ad-psgd": 130, "d-psgd-twice": 90}
STEPS_PER_EPOCH = 1_281_167 / 4096
ACCURACY = (  # top-1 on ImageNet, %, with delays
    Fact("5.2", "figure 5", "allreduce", 64, 75.9),
    Fact("5.2", "figure 5", "local-sgd", 64, 75.6),
    Fact("5.2", "figure 5", "wagma", 64, 75.3),
    Fact("5.2", "figure 5", "sgp", 64, 74.8),
    Fact("5.2", "ablation 1: local SGD, period 10", "local-sgd-10", 64, 68.5),
    Fact("5.2", "ablation 2: fixed groups", "wagma-fixed", 64, 72.2),
    Fact("5.2", "ablation 4: groups of 4", "wagma-4", 64, 72.8),
)
ACCURACY_EVEN = (  # without delays
    Fact("5.2", "no delays", "local-sgd", 64, 75.3),
    Fact("5.2", "no delays", "wagma", 64, 75.0),
    Fact("5.2", "no delays", "ad-psgd", 64, 67.1),
    Fact("5.2", "no delays", "d-psgd", 64, 71.2),
    Fact("5.2", "no delays", "sgp", 64, 74.5),
)
MORE_TRAINING = (  # accuracy, %
    Fact("5.2", "figure 5: 130 epochs", "ad-psgd", 64, 70.4),
    Fact("5.2", "figure 5: communicating twice in each step", "d-psgd-twice", 64, 74.4),
)
