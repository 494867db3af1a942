"""What a run's evidence has for readers: a bill of materials, a model card, and a program that
checks all of it. A run writes them into its folder, so that its provenance, and a signature of
that, cover them.
"""

import json
from pathlib import Path

from convkit.host.record import standalone_verifier
from convkit.host.record.bill_of_materials import ml_bom, model_card
from convkit.host.record.provenance import Provenance
from convkit.host.record.run_record import RunRecord

# In the run's folder; an evidence file has them at its top as well.
FOLDER = "evidence"
BILL, CARD, VERIFIER = "mlbom.cdx.json", "model-card.md", "verify.py"
ATTACHMENTS = (BILL, CARD, VERIFIER)


def attachments(record: RunRecord, provenance: Provenance) -> dict[str, str]:
    """Return the attachments' texts by name, as this convkit writes them."""
    return {
        BILL: json.dumps(ml_bom(record, provenance), indent=1, ensure_ascii=False),
        CARD: model_card(record, provenance),
        VERIFIER: Path(standalone_verifier.__file__).read_text(encoding="utf-8"),
    }


def write_attachments(folder: Path, record: RunRecord, provenance: Provenance) -> None:
    """Write the attachments into a run's folder; raises OSError."""
    (folder / FOLDER).mkdir()
    for name, text in attachments(record, provenance).items():
        (folder / FOLDER / name).write_text(text, encoding="utf-8")
