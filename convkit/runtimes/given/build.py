"""The build stage of given models: takes the files over and checks them against the contract."""

import contextlib
import shutil
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.runtimes.given.options import GivenOptions
from convkit.runtimes.given.session import UnnamedError, open_given
from convkit.worker.building.built_files import finish_build, refused
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.mil.package_identity import remove_empty_items
from convkit.worker.original.contract_check import GIVEN_FILE, check_contract
from convkit.worker.runtime_interface.sessions import ModelRefusedError

MODEL = "model"


def run(request: BuildRequest[GivenOptions], context: Context) -> tuple[BuildResult, list[Finding]]:
    """Copy the files unchanged, open them, and compare them with the contract."""
    for name in request.given:
        source = Path(name)
        target = context.output / f"{MODEL}{source.suffix}"
        if source.is_dir():
            shutil.copytree(source, target)
            with contextlib.suppress(StageFailedError):  # to open it says what is wrong with it
                remove_empty_items(target)  # artifacts hold files only
        elif source.is_file():
            shutil.copyfile(source, target)
        else:
            raise StageFailedError(f"there is no file {source}")
    session, findings = Contract((), (), ()), []
    context.progress("checking the given model's contract", done=0.5)
    path = context.output / f"{MODEL}{request.options.format}"
    try:
        session = open_given(path, request.options, request.contract).contract()
        findings = check_contract(request.contract, session, GIVEN_FILE)
    except UnnamedError as error:
        findings = [error.finding]
    except ModelRefusedError as error:
        # The runtime names the copy, which readers do not know.
        named = str(error).replace(str(path), "the given file")
        findings = refused(ModelRefusedError(named), is_given=True)
    return finish_build(context.output, request.contract, session), findings
