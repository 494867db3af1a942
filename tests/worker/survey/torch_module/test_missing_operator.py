"""An operator that torch's exporter lacks costs no axis."""

from test_module_survey import own, shapes

BESSEL = """
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.special.airy_ai(self.layer(x))
"""


def test_the_batch_stays_open(tmp_path):
    survey = own(tmp_path, BESSEL)
    assert shapes(survey)["x"][0] == "batch"
    assert any("airy_ai" in note for note in map(str, survey.notes))
