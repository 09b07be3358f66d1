"""Holds the second spelling of register_serializer."""
