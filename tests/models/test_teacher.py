"""Loading classifiers: labels by name, heads that are there or are asked for, and what is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.small_models import CONFIGS, small_config, small_model
from transformers import AutoModelForSequenceClassification

from potstill.errors import DataError, ModelError
from potstill.models.loading import check_encoder, longest_input, read_config
from potstill.models.teacher import has_classifier, load_classifier

KINDS = sorted(CONFIGS)
LABELS = ["bad", "fair", "good"]
IDS = torch.randint(5, 97, (4, 7), generator=torch.Generator().manual_seed(0))


def saved(folder, kind="bert", *, labels=LABELS, **options):
    model = small_model(kind, labels=len(labels), **options)
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {name: index for index, name in enumerate(labels)}
    model.save_pretrained(folder)
    return model


def bare(folder, kind="bert", *, without=("classifier", "pre_classifier"), **options):
    """A checkpoint without its head."""
    model = saved(folder, kind, **options)
    kept = {
        name: value
        for name, value in load_file(folder / "model.safetensors").items()
        if not any(p in name for p in without)
    }
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return model


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def logits(model):
    with torch.no_grad():
        return model(IDS).logits


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_stand_in_the_datas_order(tmp_path, kind):
    own = logits(saved(tmp_path, kind))
    for labels in (["bad", "fair", "good"], ["good", "bad", "fair"], ["fair", "good", "bad"]):
        model = load_classifier(tmp_path, labels)
        torch.testing.assert_close(logits(model), own[:, [LABELS.index(name) for name in labels]])
        assert [model.config.id2label[index] for index in range(3)] == labels
        assert model.config.label2id == {name: index for index, name in enumerate(labels)}
        assert not model.training


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_of_one_score(tmp_path, kind):
    bare(tmp_path / "bare", kind)
    model = load_classifier(tmp_path / "bare", (), problem_type="regression", new_head=True, answers=(2.5, 3.0), seed=4)
    plain = load_classifier(tmp_path / "bare", (), problem_type="regression", new_head=True, seed=4)
    torch.testing.assert_close(logits(model), 2.5 + 3.0 * logits(plain))
    model.save_pretrained(tmp_path / "trained")
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path / "trained")
    assert (opened.config.num_labels, opened.config.problem_type) == (1, "regression")
    again = load_classifier(tmp_path / "trained", (), problem_type="regression")
    torch.testing.assert_close(logits(again), logits(model))
    with pytest.raises(DataError, match="LABEL_0"):
        load_classifier(tmp_path / "trained", LABELS)
    saved(tmp_path / "three", kind)
    with pytest.raises(ModelError, match=r"a head of 3 outputs .* expected one, a score; fix: set teacher.trained to"):
        load_classifier(tmp_path / "three", (), problem_type="regression")


@pytest.mark.parametrize("kind", KINDS)
def test_a_reordered_classifier_says_its_new_order_when_saved(tmp_path, kind):
    saved(tmp_path / "a", kind)
    model = load_classifier(tmp_path / "a", ["good", "bad", "fair"])
    model.save_pretrained(tmp_path / "b")
    torch.testing.assert_close(logits(load_classifier(tmp_path / "b", ["good", "bad", "fair"])), logits(model))
    torch.testing.assert_close(logits(load_classifier(tmp_path / "b", LABELS)), logits(model)[:, [1, 2, 0]])
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "b")
    assert plain.config.id2label == {0: "good", 1: "bad", 2: "fair"}


@pytest.mark.parametrize(
    "labels", [["bad", "fair", "fine"], ["bad", "fair"], ["bad", "fair", "good", "great"], ["0", "1", "2"]]
)
def test_labels_that_are_not_the_models_are_refused_and_both_lists_shown(tmp_path, labels):
    saved(tmp_path)
    with pytest.raises(DataError) as caught:
        load_classifier(tmp_path, labels)
    assert "good" in str(caught.value)
    assert labels[-1] in str(caught.value)
    assert caught.value.exit_code == 2


def test_names_that_say_nothing_need_the_users_word(tmp_path):
    own = logits(saved(tmp_path, labels=["LABEL_0", "LABEL_1", "LABEL_2"]))
    with pytest.raises(DataError):
        load_classifier(tmp_path, LABELS)
    model = load_classifier(tmp_path, LABELS, assume_order=True)
    torch.testing.assert_close(logits(model), own)
    assert model.config.id2label == {0: "bad", 1: "fair", 2: "good"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_is_not_there_is_never_invented(tmp_path, kind):
    bare(tmp_path, kind)
    assert not has_classifier(tmp_path)
    with pytest.raises(ModelError, match=r"has no classification head \(.*classifier.*is missing\); fix: set teacher"):
        load_classifier(tmp_path, LABELS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_is_there_is_seen(tmp_path, kind):
    saved(tmp_path, kind)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert has_classifier(tmp_path)
    load_classifier(tmp_path, LABELS)
    load_classifier(tmp_path, LABELS, new_head=True, seed=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_bert_head_without_its_pooler_is_no_head(tmp_path):
    """[CLS] passes the pooler on its way to the classifier: drawn at random it would make nonsense of it."""
    bare(tmp_path, without=("pooler",))
    assert not has_classifier(tmp_path)
    with pytest.raises(ModelError, match=r"bert\.pooler\.dense\.bias is missing"):
        load_classifier(tmp_path, LABELS)
    load_classifier(tmp_path, LABELS, new_head=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_head_is_fresh_and_the_encoder_is_kept(tmp_path, kind):
    own = saved(tmp_path, kind)
    model = load_classifier(tmp_path, ["yes", "no"], new_head=True, seed=1)
    again = load_classifier(tmp_path, ["yes", "no"], new_head=True, seed=1)
    other = load_classifier(tmp_path, ["yes", "no"], new_head=True, seed=2)
    assert logits(model).shape == (4, 2)
    assert torch.equal(logits(model), logits(again))
    assert not torch.equal(logits(model), logits(other))
    assert model.config.id2label == {0: "yes", 1: "no"}
    for name, value in own.base_model.state_dict().items():
        assert torch.equal(value, model.base_model.state_dict()[name]), name
    # The same number of classes: the head that stands in the checkpoint is not taken for a fresh one.
    same = load_classifier(tmp_path, LABELS, new_head=True, seed=1)
    heads = {n: v for n, v in own.state_dict().items() if n.startswith(("classifier", "pre_classifier"))}
    assert heads
    for name, value in heads.items():
        assert not torch.equal(value, same.state_dict()[name]), name
    last = same.get_parameter("classifier.weight" if "classifier.weight" in heads else "classifier.out_proj.weight")
    assert float(last.detach().std()) == pytest.approx(0.02, rel=0.4)


def test_a_fresh_head_on_a_bare_encoder_depends_on_the_seed_alone(tmp_path):
    bare(tmp_path / "a")
    torch.manual_seed(1)
    first = load_classifier(tmp_path / "a", LABELS, new_head=True, seed=7)
    torch.manual_seed(2)
    second = load_classifier(tmp_path / "a", LABELS, new_head=True, seed=7)
    assert torch.equal(logits(first), logits(second))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_held_in_the_format_asked_for(tmp_path, dtype):
    saved(tmp_path)
    assert {parameter.dtype for parameter in load_classifier(tmp_path, LABELS, dtype=dtype).parameters()} == {dtype}


@pytest.mark.parametrize("new_head", [True, False])
def test_an_encoder_that_lacks_weights_is_refused(tmp_path, new_head):
    bare(tmp_path, without=("encoder.layer.1.attention",))
    with pytest.raises(ModelError, match=r"lacks weights of its encoder: bert\.encoder\.layer\.1\.attention"):
        load_classifier(tmp_path, LABELS, new_head=new_head)


@pytest.mark.parametrize("new_head", [True, False])
def test_an_encoder_of_other_sizes_than_its_config_is_refused(tmp_path, new_head):
    saved(tmp_path)
    change_config(tmp_path, intermediate_size=48)
    with pytest.raises(ModelError) as caught:
        load_classifier(tmp_path, LABELS, new_head=new_head)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("names", [{"0": "a", "2": "b"}, {"1": "a", "2": "b"}])
def test_labels_numbered_with_gaps_are_refused(tmp_path, names):
    saved(tmp_path, labels=["a", "b"])
    change_config(tmp_path, id2label=names)
    with pytest.raises(ModelError, match="numbers its labels"):
        load_classifier(tmp_path, ["a", "b"])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "gpt2"}, "is of type 'gpt2'; expected an encoder"),
        ({"model_type": "no-such-model"}, "holds no model that transformers knows"),
        ({"is_decoder": True}, "is a 'bert' with a decoder"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0 in its config.json; expected a whole number from 1"),
        ({"num_attention_heads": 5}, "a width of 24 with 5 heads"),
        ({"hidden_size": "abc"}, "holds no model that transformers knows: .*hidden_size"),
    ],
)
def test_what_is_no_encoder_is_refused(tmp_path, values, said):
    saved(tmp_path)
    change_config(tmp_path, **values)
    with pytest.raises(ModelError, match=said) as caught:
        read_config(tmp_path)
    assert caught.value.exit_code == 2
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ModelError, match="holds no model"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{not json")
    with pytest.raises(ModelError, match="holds no model"):
        read_config(tmp_path)


def test_a_config_without_weights(tmp_path):
    small_config().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_classifier(tmp_path, LABELS)


def test_pickled_weights_are_not_read(tmp_path):
    model = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_classifier(tmp_path, LABELS)


def test_a_damaged_file_of_weights(tmp_path):
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_classifier(tmp_path, LABELS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_input_can_be_read_and_one_token_more_cannot(kind):
    config = small_config(kind, max_position_embeddings=20)
    longest = longest_input(config)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    ids = torch.full((1, longest), 50)
    with torch.no_grad():
        model(ids)
        if kind in ("modernbert", "deberta-v2"):  # positions are relative: what was trained is the limit, not a table
            assert longest == 20
            return
        with pytest.raises((IndexError, RuntimeError)):
            model(torch.full((1, longest + 1), 50))


def test_weights_that_do_not_fit_their_config_are_refused_before_any_work(tmp_path):
    saved(tmp_path)
    check_encoder(tmp_path)
    change_config(tmp_path, num_hidden_layers=1)
    with pytest.raises(ModelError, match=r"weights that its config\.json has no place for \(.*layer\.1\."):
        check_encoder(tmp_path)
    change_config(tmp_path, num_hidden_layers=2, hidden_act="foo")
    with pytest.raises(ModelError, match="cannot be loaded"):
        check_encoder(tmp_path)


def test_damaged_weights_are_refused_before_any_work(tmp_path):
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("query.weight"))
    weights[name][0, 0] = float("nan")
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="NaN or infinite"):
        check_encoder(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot be loaded"):
        check_encoder(tmp_path)


def test_a_mobileberts_last_word_does_not_see_the_padding(tmp_path):
    """Each word's vector is joined with its neighbours'."""
    saved(tmp_path, "mobilebert")
    weights = load_file(tmp_path / "model.safetensors")
    weights["mobilebert.embeddings.word_embeddings.weight"][0] = 0.7
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ids = torch.tensor([[7, 8, 9, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    apart = []
    for model in (AutoModelForSequenceClassification.from_pretrained(tmp_path), load_classifier(tmp_path, LABELS)):
        with torch.no_grad():
            padded, alone = model(ids, attention_mask=mask).logits, model(ids[:, :3]).logits
        apart.append(float((padded - alone).abs().max()))
    assert apart[0] > 1e-3
    assert apart[1] < 1e-5
