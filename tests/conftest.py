"""What holds for every test: nothing of the user's is read or written, and nothing is timed. And the tiny models."""

import atexit
import os
import shutil
import tempfile

import pytest
from hypothesis import settings

# Before anything imports the libraries that read these. Network tests may share downloads by setting POTSTILL_CACHE.
_FOLDER = tempfile.mkdtemp(prefix="potstill-tests-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
os.environ.setdefault("POTSTILL_CACHE", f"{_FOLDER}/cache")
os.environ["HF_HOME"] = f"{_FOLDER}/hub"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TQDM_DISABLE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
for _name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "POTSTILL_OFFLINE"):
    os.environ.pop(_name, None)

# A machine that others share may stop a test for a second: no deadline. In CI the examples are the same every time.
settings.register_profile("potstill", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("potstill")


def _exported(kind, tmp_path_factory):
    from tests.tiny import exported_tiny  # imports torch, which must find the settings above

    return exported_tiny(kind, tmp_path_factory.mktemp)


@pytest.fixture(scope="session", params=["bert", "mpnet"])
def folder(request, tmp_path_factory):
    """Each of the two tiny models, with all its exports; not to be changed."""
    return _exported(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """The tiny BERT with all its exports; not to be changed."""
    return _exported("bert", tmp_path_factory)


@pytest.fixture(scope="session")
def mpnet(tmp_path_factory):
    """The tiny MPNet with all its exports; not to be changed."""
    return _exported("mpnet", tmp_path_factory)


_RAISES_SIGNALS = ("tests/training/test_interrupt.py", "tests/training/test_resume.py")


def pytest_collection_modifyitems(items):
    """Tests that raise signals in this process come first.

    After thousands of others the process was seen to end at the first signal raised (SIGSEGV, without a word of
    faulthandler's, whose signal stack is the one used): not explained yet; in a process of their own they pass.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(_RAISES_SIGNALS))  # stable: all else stays in order
