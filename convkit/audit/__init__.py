"""Past runs: listing them, checking that their bytes are intact, comparing and reproducing them."""
