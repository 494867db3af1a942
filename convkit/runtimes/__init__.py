"""The runtimes that serve built models. One module each; `registry` lists them."""
