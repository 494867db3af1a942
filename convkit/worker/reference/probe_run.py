"""The base case and its probes, in which inputs are changed, swapped or merged."""

import dataclasses

import numpy as np

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CaseRecord, OmittedCase
from convkit.protocol.same_fields import taken_from
from convkit.worker.cases.axis_sizes import probe_sizes, smallest_sizes
from convkit.worker.cases.case import Case, Feeds, sizes_text
from convkit.worker.cases.case_files import read_tensors, write_tensors
from convkit.worker.cases.input_probes import BASE, base_case, build_probes
from convkit.worker.metrics.tensor_metrics import largest_difference
from convkit.worker.reference.original_calls import OriginalCalls
from convkit.worker.reference.original_outputs import no_influence
from convkit.worker.runtime_interface.sessions import RunFailedError


class ProbeRun:
    """Runs the base case and its probes."""

    def __init__(self, calls: OriginalCalls) -> None:
        self._calls = calls
        self.findings: list[Finding] = []

    def run(self, omitted: list[OmittedCase]) -> list[CaseRecord]:
        """Run the base case and its probes; an input that moves no output yields C112."""
        base = self._base()
        if isinstance(base, str):
            omitted.append(OmittedCase(BASE, base))
            return []
        case, record = base
        probes, left_out = build_probes(self._calls.made_from, case)
        omitted += left_out
        records = [record]
        expected = read_tensors(
            self._calls.context.output, case.name, "outputs", self._calls.contract.outputs
        )
        base_feeds = read_tensors(
            self._calls.context.output, case.name, "inputs", self._calls.contract.inputs
        )
        for done, probe in enumerate(probes):
            self._calls.context.progress(f"original model: {probe.name}", done=done / len(probes))
            records.append(self._probe(probe, base_feeds, expected))
        return records

    def _base(self) -> tuple[Case, CaseRecord] | str:
        """Return the base case at the first sizes that the original accepts, or why there is
        none.
        """
        contract = self._calls.contract
        refusal = ""
        for sizes in (probe_sizes(contract), contract.typical_sizes(), smallest_sizes(contract)):
            case = base_case(self._calls.made_from, sizes)
            feeds = case.inputs()
            try:
                outputs, seconds = self._calls.run(feeds)
            except RunFailedError as error:
                refusal = refusal or f"the original refuses {sizes_text(sizes)}: {error}"
                continue
            self._calls.write(case, feeds, outputs)
            return case, CaseRecord(case.name, case.kind, case.description, case.sizes, seconds)
        return refusal

    def _probe(self, probe: Case, base: Feeds, expected: Feeds) -> CaseRecord:
        feeds = probe.inputs()
        record = taken_from(CaseRecord, probe, seconds=0.0)
        write_tensors(self._calls.context.output, probe.name, "inputs", feeds)
        if all(np.array_equal(feeds[name], base[name]) for name in feeds):
            return dataclasses.replace(
                record, runnable=False, detail="the samples allow no other values"
            )
        try:
            outputs, seconds = self._calls.run(feeds)
        except RunFailedError as error:
            return dataclasses.replace(
                record, runnable=False, detail=f"the original refuses it: {error}"
            )
        write_tensors(self._calls.context.output, probe.name, "outputs", outputs)
        change, same = probe.change, largest_difference(expected, outputs) == 0.0
        if change is not None and change.kind == "perturbed" and same:
            samples = self._calls.made_from.samples
            # A constant sample says nothing about other values, such as a limit's beyond all data.
            constant = {name for name in samples if samples[name].kind == "constant"}
            self.findings += map(no_influence, set(change.tensors) - constant)
        return dataclasses.replace(record, seconds=seconds)
