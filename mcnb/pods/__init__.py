"""Compile programs for TPU pods ahead of time, without the hardware."""
