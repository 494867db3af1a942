"""`python -m convkit`, where the command is not on the path."""

from convkit.cli.main import start

if __name__ == "__main__":
    start()
