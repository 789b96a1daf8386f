"""The single-file verifiers: the Python sources without their packages, and another implementation in JavaScript."""
