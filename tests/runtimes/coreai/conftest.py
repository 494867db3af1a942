"""Core AI's packages, fetched once for all runs and imported beside those of this environment."""

import sys

import pytest
from environments import package_folder

# coreai-torch accepts torch as it is here; the last two are all that they need besides.
PACKAGES = ("coreai-core==1.0.0b3", "coreai-torch==0.4.3", "strenum==0.5.0", "yuvio==1.6")
# coreai-opt imports torchao, and needs nothing else that is not here.
COMPRESSING = ("coreai-opt==0.4.0", "torchao==0.18.0")


@pytest.fixture(scope="session")
def coreai() -> None:
    """Make `coreai` and `coreai_torch` importable."""
    add(PACKAGES)


@pytest.fixture(scope="session")
def coreai_opt() -> None:
    """Make `coreai_opt` importable."""
    add(COMPRESSING)


def add(packages: tuple[str, ...]) -> None:
    """Make packages importable."""
    for package in packages:
        folder = str(package_folder(package))
        if folder not in sys.path:
            sys.path.append(folder)
