"""Recording: what passes chosen places, one row a token, with no trace left."""

import pytest
import torch
from tests.models.test_shrink import texts
from tests.small_models import small_model

from potstill.models.anatomy import encoder_parts
from potstill.models.record import Calibration, inputs_of, output_of, record


@pytest.mark.parametrize("kind", ["bert", "distilbert", "mpnet"])
def test_rows_are_tokens_in_order(kind):
    model = small_model(kind)
    batches = texts(model, kind, each=3, lengths=(4, 7))
    parts = encoder_parts(model)
    layer = parts.layers[1]
    spots = [output_of(parts.embedding_output), output_of(layer.layer), inputs_of(layer.ffn_out), output_of(model)]
    seen = record(model, Calibration(batches), spots)
    with torch.no_grad():
        outputs = [model(**batch, output_hidden_states=True) for batch in batches]
    for spot, index in ((spots[0], 0), (spots[1], 2)):
        wanted = torch.cat([output.hidden_states[index].flatten(0, 1) for output in outputs])
        torch.testing.assert_close(seen[spot], wanted)
        assert len(seen[spot]) == 3 * 4 + 3 * 7
    torch.testing.assert_close(seen[spots[3]], torch.cat([output.logits for output in outputs]))
    torch.testing.assert_close(layer.ffn_out(seen[spots[2]]).shape, torch.Size([33, 24]))


def test_a_pass_goes_only_as_far_as_the_last_place():
    model = small_model(layers=2)
    parts = encoder_parts(model)
    ran = []
    parts.layers[1].query.register_forward_hook(lambda *_: ran.append(1))
    seen = record(model, Calibration(texts(model, each=2)), [inputs_of(parts.layers[0].attention_norm)])
    assert not ran
    with torch.no_grad():  # the pass that was cut short leaves nothing open
        output = model(**texts(model, each=2)[0], output_hidden_states=True, output_attentions=True)
    assert len(output.hidden_states) == 3
    assert len(output.attentions) == 2
    assert len(next(iter(seen.values()))) == 2 * (6 + 9 + 13)


def test_the_model_is_left_as_it_was_after_an_error_too():
    model = small_model(dropout=0.5).train()
    parts = encoder_parts(model)
    batches = Calibration(texts(model, each=2))
    first = record(model, batches, [output_of(model)])
    second = record(model, batches, [output_of(model)])
    assert torch.equal(first[output_of(model)], second[output_of(model)])  # no dropout
    assert model.training
    with pytest.raises(ValueError, match="input_ids"):
        record(model, Calibration([{}]), [output_of(parts.layers[0].layer)])
    assert model.training
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_states_are_given_in_float32_whatever_they_are_computed_in():
    model = small_model()
    spots = [output_of(model), output_of(encoder_parts(model).layers[0].layer)]
    batches = texts(model, each=2)
    wanted = record(model, Calibration(batches), spots)
    lower = record(model, Calibration(batches, torch.bfloat16), spots)
    held = record(model.to(torch.bfloat16), Calibration(batches, torch.bfloat16), spots)
    for got in (lower, held):
        for spot in spots:
            assert got[spot].dtype == torch.float32
            torch.testing.assert_close(got[spot], wanted[spot], rtol=0.1, atol=0.2)
            assert not torch.equal(got[spot], wanted[spot])


def test_nothing_to_record():
    assert record(small_model(), Calibration([]), []) == {}
