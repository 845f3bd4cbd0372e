"""TPU pods ahead of time, without the hardware."""
