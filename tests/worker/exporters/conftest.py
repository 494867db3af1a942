"""An environment for optimum, which needs an older transformers than the tests have."""

import pytest
from environments import environment_python


@pytest.fixture(scope="session")
def optimum_python():
    return environment_python(
        "optimum",
        "torch==2.13.0",
        "optimum-onnx==0.1.0",
        "transformers==4.57.*",
        "onnx==1.23.*",
        "onnx-ir==1.1.*",
        "onnxscript==0.7.*",
        "onnxruntime==1.31.*",
    )
