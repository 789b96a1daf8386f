"""Verifiers that stand in one file: this one's sources without their packages, and another one in JavaScript."""
