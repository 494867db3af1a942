"""The variables of the user's environment that a worker sees. Standard library only."""

from collections.abc import Mapping

# The variables of the user's environment that a worker may see: file locations, network access,
# device selection. PYTHON* variables are excluded because they would change the stage's
# environment.
_PASSED_ON = frozenset(
    {
        *(
            "PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "TMPDIR",
            "LD_LIBRARY_PATH",
            "XDG_CACHE_HOME",
            "TORCH_HOME",
        ),
        *(
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "OMP_NUM_THREADS",
        ),
        *(
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
        ),
    }
)
_PASSED_ON_PREFIXES = ("HF_", "CUDA_", "NVIDIA_")


def passed_on(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the user's environment that a worker sees."""
    return {
        name: value
        for name, value in given.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
