"""How good an encoder is: the STS sets, the transfer tasks, and probes of its space of sentences."""
