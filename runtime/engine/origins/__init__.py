"""The origins of values: who gave them, or what returned them."""
