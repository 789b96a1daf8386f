"""What the dispatcher delivers: one module for each kind of message."""
