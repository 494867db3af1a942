"""An operator that torch's exporter lacks costs no axis."""

from test_module_survey import own, shapes

BESSEL = """
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        return torch.special.bessel_j0(self.layer(x))
"""


def test_the_batch_stays_open(tmp_path):
    survey = own(tmp_path, BESSEL)
    assert shapes(survey)["x"][0] == "batch"
    assert any("bessel_j0" in note for note in map(str, survey.notes))
