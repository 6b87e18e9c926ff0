"""The two tiny models, exported."""

import pytest
from tests.tiny import exported_tiny


@pytest.fixture(scope="session", params=["bert", "mpnet"])
def folder(request, tmp_path_factory):
    return exported_tiny(request.param, tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    return exported_tiny("bert", tmp_path_factory.mktemp)
