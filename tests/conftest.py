"""What holds for every test: nothing of the user's is read or written, and nothing is timed."""

import atexit
import os
import shutil
import tempfile

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
