"""What commands print for other programs."""

import typer


def print_json(value: object, **further: object) -> None:
    """Print a record, or anything that JSON has, with `further` entries."""
    import json

    from convkit.protocol.json_codec import encode

    content = encode(value)
    if further:
        assert isinstance(content, dict)
        content |= further
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
