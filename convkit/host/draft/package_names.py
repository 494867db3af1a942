"""The names under which an index has the packages that modules come from."""

import functools
import importlib.metadata
import json
from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name

# Modules whose package has another name, beyond `_` for `-` and capital letters.
_BY_MODULE = {
    "attr": "attrs",
    "Bio": "biopython",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google": "protobuf",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "Levenshtein": "python-levenshtein",
    "mpl_toolkits": "matplotlib",
    "open_clip": "open-clip-torch",
    "OpenGL": "pyopengl",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pywt": "pywavelets",
    "ruamel": "ruamel-yaml",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
# Names that projects give to their own modules. A package of that name is hardly the one meant.
USUALLY_OWN = frozenset(
    {
        *("arch", "archs", "backbone", "backbones", "base", "blocks", "cfg", "common", "config"),
        *("configs", "core", "data", "dataloader", "dataloaders", "dataset", "engine"),
        *("experiments", "helper", "helpers", "layer", "layers", "lib", "libs", "loss", "losses"),
        *("main", "metrics", "misc", "model", "modeling", "models", "module", "modules", "net"),
        *("nets", "network", "networks", "ops", "options", "resnet", "scripts", "src", "test"),
        *("tests", "tools", "train", "trainer", "transformer", "unet", "util", "utils"),
        *("vision_transformer"),
    }
)


@functools.cache
def _providers() -> Mapping[str, Sequence[str]]:
    return importlib.metadata.packages_distributions()


def package_of(root: str) -> str:
    """Return the package that a module's first name belongs to: the installed one that provides it,
    else by convention.
    """
    installed = sorted(_providers().get(root, ()))
    return str(canonicalize_name(installed[0] if installed else _BY_MODULE.get(root, root)))


def source_folder(package: str) -> str | None:
    """Return the URL of the folder or repository that an installed package comes from; None if it
    is from an index, or not installed.
    """
    try:
        text = importlib.metadata.distribution(package).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return None
    url = found.get("url") if isinstance(found, dict) else None
    # A wheel that was installed from a file has a version that an index may have, too.
    is_archive = isinstance(found, dict) and "archive_info" in found
    return url if isinstance(url, str) and not is_archive else None


def installed_version(package: str) -> str | None:
    """Return a package's version in the current environment; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def is_guessed(root: str) -> bool:
    """Return True if nothing but convention says which package a module belongs to."""
    return root not in _BY_MODULE and not _providers().get(root)
