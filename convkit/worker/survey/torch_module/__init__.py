"""Surveys of torch modules, by running and tracing them."""
