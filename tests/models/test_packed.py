"""Models that are only read: the same values as from weights that are not packed, states too."""

import copy

import pytest
import torch
from tests.small_models import CONFIGS, small_model
from torch import nn

from potstill.models.packed import read_only
from potstill.models.tap import tap


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_answers_and_states_are_those_of_the_model_itself(kind, precision):
    plain = small_model(kind).to(getattr(torch, precision))
    model = read_only(copy.deepcopy(plain), precision)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model.state_dict().keys() == plain.state_dict().keys()
    ids, mask = torch.randint(5, 90, (3, 9)), torch.ones(3, 9, dtype=torch.long)
    mask[1, 4:] = 0
    found = []
    for one in (plain, model):
        states = tap(one, [0, 1, 2], ["hidden"])
        with torch.no_grad():
            found.append([one(input_ids=ids, attention_mask=mask).logits, *states.hidden.values()])
        states.close()
    for own, theirs in zip(*found, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-2 if precision == "bfloat16" else 0, atol=1e-3)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_every_linear_layer_of_a_model_in_bfloat16_is_packed_to_its_own_product():
    generator = torch.Generator().manual_seed(0)
    model = small_model("bert").to(torch.bfloat16)
    wanted = [module for module in model.modules() if isinstance(module, nn.Linear)]
    plain = copy.deepcopy(wanted)
    read_only(model, "bfloat16")
    assert wanted
    for packed, own in zip(wanted, plain, strict=True):
        assert type(packed) is not nn.Linear
        for rows in (1, 7, 300):
            given = torch.randn(2, rows, own.in_features, generator=generator).to(torch.bfloat16)
            exact = given.double() @ own.weight.double().T + own.bias.double()
            torch.testing.assert_close(packed(given), own(given), rtol=1e-2, atol=1e-2)
            torch.testing.assert_close(packed(given).double(), exact, rtol=1e-2, atol=1e-2)


def test_float32_stays_as_it_is():
    model = read_only(small_model("bert"), "float32")
    assert all(type(module) is nn.Linear for module in model.modules() if isinstance(module, nn.Linear))
