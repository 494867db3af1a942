"""The runtimes that execute built models, one package each; `registry` lists them."""
