"""Do the claims made for local updates, and for optimizers under delay, hold where they are smallest? Each in an experiment."""
