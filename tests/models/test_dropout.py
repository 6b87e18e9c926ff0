"""Fast dropout: what it drops, what it keeps, its gradient, and that the seed decides."""

import pytest
import torch
from tests.small_models import CONFIGS, small_model
from torch import nn

from potstill.models.attention import PLAIN
from potstill.models.dropout import FastDropout, set_dropout
from potstill.models.precision import choose_attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.03])
def test_shares_scale_and_gradient(p, dtype):
    torch.manual_seed(0)
    values = torch.full((400, 501), 2.0, dtype=dtype, requires_grad=True)
    out = FastDropout(p)(values)
    out.backward(torch.full_like(out, 3.0))
    zero = out == 0
    assert zero.float().mean() == pytest.approx(p, abs=0.005)
    assert out[~zero].unique().item() == pytest.approx(2.0 / (1 - p), rel=1e-2 if dtype == torch.bfloat16 else 1e-4)
    assert (values.grad[zero] == 0).all()
    assert values.grad[~zero].unique().item() == pytest.approx(3.0 / (1 - p), rel=2e-2)
    # No row or column is preferred, and neighbours do not go together.
    assert float(zero.float().mean(dim=0).std()) < 0.04
    together = (zero[:, 1:] & zero[:, :-1]).float().mean()
    assert together == pytest.approx(p * p, abs=0.005)


def test_the_seed_decides():
    drop, values = FastDropout(0.3), torch.ones(7, 9)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(drop(values))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_off_is_off():
    values = torch.randn(5, 3)
    assert torch.equal(FastDropout(0.3).eval()(values), values)
    assert torch.equal(FastDropout(0.0)(values), values)
    assert torch.equal(FastDropout(1.0)(values), torch.zeros(5, 3))


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_dropout_of_a_model_is_replaced_or_off(kind):
    model = small_model(kind, dropout=0.1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    set_dropout(model, on=True)
    found = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    assert found
    assert all(type(module) is FastDropout and module.p == pytest.approx(0.1) for module in found)
    assert model.state_dict().keys() == before.keys()
    ids = torch.randint(5, 90, (2, 8))
    model.train()
    torch.manual_seed(0)
    first = model(input_ids=ids).logits
    torch.manual_seed(0)
    assert torch.equal(model(input_ids=ids).logits, first)
    torch.manual_seed(1)
    assert not torch.equal(model(input_ids=ids).logits, first)
    set_dropout(model, on=False)
    torch.manual_seed(1)
    second = model(input_ids=ids).logits
    assert torch.equal(second, model.eval()(input_ids=ids).logits)


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind not in ("mpnet", "deberta-v2")])
def test_plain_attention_is_eager_attention_with_padding_too(kind):
    model = small_model(kind)
    ids = torch.randint(5, 90, (3, 9))
    mask = torch.ones_like(ids)
    mask[0, 6:] = mask[2, 2:] = 0
    for given in ({}, {"attention_mask": mask}):
        model.set_attn_implementation("eager")
        wanted = model(input_ids=ids, **given, output_attentions=True)
        model.set_attn_implementation(PLAIN)
        found = model(input_ids=ids, **given, output_attentions=True)
        torch.testing.assert_close(found.logits, wanted.logits)
        for own, theirs in zip(found.attentions, wanted.attentions, strict=True):
            torch.testing.assert_close(own, theirs)
    other = ids.clone()
    other[mask == 0] = 7
    if kind in ("bert", "distilbert", "electra"):  # others count positions from padding ids
        torch.testing.assert_close(
            model(input_ids=other, attention_mask=mask).logits, model(input_ids=ids, attention_mask=mask).logits
        )


def test_plain_attention_drops_probabilities_in_training(tmp_path):
    model = small_model("bert", dropout=0.4)
    set_dropout(model, on=True)
    choose_attention(model, 9, backward=True)
    assert model.config._attn_implementation == PLAIN
    ids = torch.randint(5, 90, (3, 9))
    seen = model.train()(input_ids=ids, output_attentions=True).attentions[0]
    assert (seen == 0).float().mean() == pytest.approx(0.4, abs=0.1)
    model.eval()
    assert (model(input_ids=ids, output_attentions=True).attentions[0] > 0).all()
    model.save_pretrained(tmp_path)
    assert PLAIN not in (tmp_path / "config.json").read_text()
