"""The origins of values: the people who gave them, or the operations that returned them."""
