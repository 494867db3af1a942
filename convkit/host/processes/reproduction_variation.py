"""What a reproduction varies on purpose around each stage; none of it may change a result."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Variation:
    """A different hash seed, time zone (POSIX form) and thread count. Folders differ anyway."""

    hash_seed: int = 4711
    timezone: str = "XYZ-11:30"
    threads: int | None = 1

    def __str__(self) -> str:
        threads = (
            f", {self.threads} thread{'s' if self.threads != 1 else ''}"
            if self.threads is not None
            else ""
        )
        return f"hash seed {self.hash_seed}, time zone {self.timezone}{threads}, other folders"
