"""`convkit keys new` and `convkit sign`."""

from pathlib import Path
from typing import Annotated

import typer

from convkit.cli.input.options import HomeFolder, Run

app = typer.Typer(no_args_is_help=True, help="Keys that sign runs.", rich_markup_mode=None)


@app.callback()
def keys() -> None:
    """Keep `new` a subcommand although it is the only one."""


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as release.")],
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where to write it. [~/.config/convkit/keys]"),
    ] = None,
) -> None:
    """Make a key pair: NAME.key signs and stays secret, NAME.pub goes into a policy."""
    from convkit.host.audit.signing.signing_keys import default_folder, make_key

    key = make_key(name, folder or default_folder())
    typer.echo(f"private key: {key.private} (not encrypted; keep it secret)")
    typer.echo(f"public key:  {key.public}")
    typer.echo(f"key id:      {key.keyid}")


def sign(
    run: Run,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", metavar="FILE", envvar="CONVKIT_KEY", help="A private key of `keys new`."
        ),
    ] = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Sign as your CI job, or yourself, through Sigstore.")
    ] = False,
    identity_token: Annotated[
        Path | None,
        typer.Option(
            "--identity-token",
            metavar="FILE",
            help="--keyless: an OpenID Connect token, if not the CI system's own.",
        ),
    ] = None,
    sigstore: Annotated[
        Path | None,
        typer.Option(
            "--sigstore",
            metavar="FILE",
            help="--keyless: the trust configuration of a private Sigstore.",
        ),
    ] = None,
    home: HomeFolder = None,
) -> None:
    """Sign a run's provenance and models. Acceptances and reproductions are signed, too. The
    signatures are beside the run. Only an intact run is signed.
    """
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.sign_command import Keyless, sign_run
    from convkit.host.audit.signing.keyless_signatures import read_token
    from convkit.host.home import Home
    from convkit.host.run.run_selection import find_run
    from convkit.protocol.errors import UsageError

    place = Home.find(home)
    folder = find_run(run, place)
    if keyless:
        by: Path | Keyless = Keyless(read_token(identity_token), sigstore)
    elif key is None:
        raise UsageError("name a key (--key FILE; convkit keys new makes one), or sign --keyless")
    elif identity_token is not None or sigstore is not None:
        raise UsageError("--identity-token and --sigstore belong to --keyless")
    else:
        by = key
    with waiting("checking and signing the run"):
        signatures = sign_run(folder, by, place)
    for signature in signatures:
        typer.echo(f"signed {signature.path} as {signature.by}")
