"""Lets torch look up its composite operators once, not once for each namespace.

To list the operators that it can keep whole, torch.export looks up all composite ones that are
registered, again for every namespace of operators, twice for each export: 0.15 s.
"""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def looked_up_once() -> Iterator[None]:
    """Look the operators up once inside the block. A program that has been traced registers none.

    Releases of torch that do not look them up stay as they are.
    """
    from torch._export import utils

    look_up = getattr(utils, "_materialize_cpp_cia_ops", None)
    if look_up is None:
        yield
        return
    known = False

    def once() -> None:
        nonlocal known
        if not known:
            look_up()
            known = True

    utils._materialize_cpp_cia_ops = once  # noqa: SLF001 - torch offers no setting
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = look_up  # noqa: SLF001 - as above
