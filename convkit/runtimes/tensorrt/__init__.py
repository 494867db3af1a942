"""TensorRT 10 and 11: what its parser takes, engines built strongly typed, and engines run by name.

`parser_support` and `profiles` need no TensorRT; everything else imports it where it is used.
"""
