"""The original model: loaded, called through the contract, examined."""
