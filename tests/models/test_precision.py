"""Number formats and attention kernels."""

import pytest
import torch
from tests.small_models import CONFIGS, small_model

from potstill.models.attention import PLAIN
from potstill.models.precision import SDPA_FROM, choose_attention, held, training_dtype


def test_a_format_that_is_named_is_taken():
    assert training_dtype("float32") == torch.float32
    assert training_dtype("bfloat16") == torch.bfloat16


@pytest.mark.parametrize(
    ("capabilities", "wanted"),
    [({"amx_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32), ({}, torch.float32)],
)
def test_auto_is_bfloat16_where_the_processor_multiplies_it(monkeypatch, capabilities, wanted):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert training_dtype("auto") == wanted


def test_held():
    model = small_model()
    assert held(model, "bfloat16") is model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("kind", CONFIGS)
def test_kernels_by_length_and_both_give_the_same(kind):
    model = small_model(kind)
    ids = torch.randint(5, 97, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1] * 9, [1] * 4 + [0] * 5])
    found = {}
    for length, backward in ((9, True), (9, False), (SDPA_FROM - 1, True), (SDPA_FROM, True)):
        choose_attention(model, length, backward=backward)
        with torch.no_grad():
            found[length, backward] = model.config._attn_implementation, model(ids, attention_mask=mask).logits
    plain, fused = ("eager", "eager") if kind in ("mpnet", "deberta-v2") else (PLAIN, "sdpa")
    assert [name for name, _ in found.values()] == [plain, fused, plain, fused]
    first = found[9, True][1]
    for _, logits in found.values():
        torch.testing.assert_close(logits, first, rtol=1e-4, atol=1e-5)
