"""Imported relatively by the pack, to prove that this works."""

WORD = "relative"
