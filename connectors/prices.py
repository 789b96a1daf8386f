"""Prices of models, from the table that ships with genai-prices."""

from __future__ import annotations

import genai_prices


def has_price(model: str) -> bool:
    """True if the price of a model with this name is known, for any provider."""
    try:
        genai_prices.calc_price(genai_prices.Usage(input_tokens=1, output_tokens=1), model)
    except (LookupError, ValueError):
        return False
    return True
