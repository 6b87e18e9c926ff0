"""Two gloo processes give the gradients, the weights and the curve of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.training.toys import distilling

from potstill.errors import NonFiniteError, SettingsError
from potstill.training import AdamW, Processes, Schedule, train
from potstill.training.gradients import collect_gradients

SCHEDULE = Schedule(7, 3e-3, accumulate=2, average=0.3)
"""14 texts, 3 a micro-batch: an epoch has updates of 2, 2 and 1, so that once in three the second has nothing to do."""

WORKER = """
import json, sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from tests.training import test_processes
from potstill.training import Processes
torch.set_num_threads(1)
out = Path(sys.argv[1])
processes = Processes.joined()
assert processes.count == 2
tensors, curve = test_processes.trained(processes, checkpoints=out / "state", spoil="spoil" in sys.argv)
save_file(tensors, out / f"{processes.rank}.safetensors")
(out / f"{processes.rank}.json").write_text(json.dumps(curve))
"""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As many as the workers have, whatever earlier tests have set: a checkpoint says how many it was written with."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(processes=None, checkpoints=None, *, spoil=False):
    """Everything a training leaves: the first update's gradient, the weights and the curve."""
    processes = processes or Processes()
    program = distilling(dropout=0.1)
    optimiser = AdamW(program.modules, sparse_from=50)
    assert optimiser.tables
    first = program.batches(0)[:2]
    values = collect_gradients(program, optimiser, first, [1, 2], processes)
    if spoil and processes.rank == 1:
        with torch.no_grad():
            program.student.classifier.bias[0] = float("nan")
    found = {}

    def keep(norm_of=torch.nn.utils.get_total_norm):
        def norm(gradients):
            for number, gradient in enumerate(gradients):
                found.setdefault(f"gradient/{number}", gradient.clone())
            return norm_of(gradients)

        return norm

    plain, torch.nn.utils.get_total_norm = torch.nn.utils.get_total_norm, keep()
    try:
        optimiser.step(0.0, "", processes)
    finally:
        torch.nn.utils.get_total_norm = plain
    program.close()
    program = distilling(dropout=0.1)
    if spoil and processes.rank == 1:
        with torch.no_grad():
            program.student.classifier.bias[0] = float("nan")
    optimiser = AdamW(program.modules, sparse_from=50)
    result = train(
        program, optimiser, SCHEDULE, seed=(0,), points=7, processes=processes, checkpoints=checkpoints, save_every=0.0
    )
    program.close()
    for name, module in program.modules.items():
        found |= {f"{name}.{key}": tensor.contiguous() for key, tensor in module.state_dict().items()}
    curve = [[point["step"], point["examples"], point["terms"]] for point in result.curve]
    return found, {"first": values, "curve": curve}


def start(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    script = folder / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    return subprocess.run(
        [*command, str(folder), *more], env=environment, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    done = start(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_the_gradients_and_the_weights_of_one(two):
    wanted, told = trained()
    for rank in (0, 1):
        found = load_file(two / f"{rank}.safetensors")
        assert found.keys() == wanted.keys()
        assert sum(name.startswith("gradient/") for name in found) > 20
        for name, tensor in wanted.items():
            torch.testing.assert_close(found[name], tensor, rtol=2e-4, atol=2e-6, msg=name)
        curve = json.loads((two / f"{rank}.json").read_text())
        assert [point[:2] for point in curve["curve"]] == [point[:2] for point in told["curve"]]
        for own, other in zip(curve["curve"], told["curve"], strict=True):
            assert own[2] == pytest.approx(other[2], rel=1e-4)


def test_all_processes_end_in_the_same_bytes(two):
    one, other = (load_file(two / f"{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items() if "word_embeddings" not in name)
    for name in (name for name in one if "word_embeddings" in name):
        torch.testing.assert_close(one[name], other[name], rtol=1e-6, atol=1e-8)


def test_a_checkpoint_of_two_goes_on_with_one(two):
    assert sorted(path.name for path in (two / "state").iterdir()) == ["step-00000006"]
    found, _ = trained(checkpoints=two / "state")
    wanted = load_file(two / "0.safetensors")
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=2e-4, atol=2e-6, msg=name)


def test_nan_in_one_process_stops_all_and_names_the_batch(tmp_path):
    done = start(tmp_path, "spoil")
    assert done.returncode != 0
    assert "NonFiniteError" in done.stderr
    assert not (tmp_path / "0.safetensors").exists()


def test_fewer_micro_batches_than_processes_are_refused():
    program = distilling()
    with pytest.raises(SettingsError, match=r"3 processes with 2 micro-batch.*distill\.accumulate"):
        train(program, AdamW(program.modules), SCHEDULE, seed=(0,), processes=Processes(0, 3))
    program.close()


def test_joining_alone_and_half(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert (Processes.joined().rank, Processes.joined().count) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SettingsError, match="WORLD_SIZE = 2 without RANK"):
        Processes.joined()


def test_nothing_is_told_where_one_is_alone():
    one, tensor = Processes(), torch.ones(3)
    one.sum([tensor])
    one.wait()
    assert tensor.tolist() == [1, 1, 1]
    assert (one.first(2.5), one.any(True), one.any(False)) == (2.5, True, False)
    assert list(Processes(1, 3).share(range(7))) == [1, 4]


def test_every_micro_batch_of_an_update_is_told():
    program = distilling(dropout=0.0)
    optimiser = AdamW(program.modules)
    batches = program.batches(0)[:3]
    found = collect_gradients(program, optimiser, batches)
    for told, rows in zip(found, batches, strict=True):
        alone = program.step(rows)
        assert told.keys() == alone.keys()
        for name, term in alone.items():
            assert told[name] == pytest.approx((float(term.sum.detach()), term.count), rel=1e-5)
    with pytest.raises(NonFiniteError):
        program.student.classifier.bias.data[0] = float("nan")
        train(program, optimiser, Schedule(1, 0.1), seed=(0,))
    program.close()
