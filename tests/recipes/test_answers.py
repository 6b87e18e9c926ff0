"""Methods cut to their answers; and scores as teacher teach what the teacher's own logits do."""

import numpy as np
import pytest
import torch
from tests.tiny import tiny_model

from potstill.data.answers import Layout, read_scores
from potstill.data.batching import Batches
from potstill.data.encoding import TextEncoder
from potstill.data.tables import read_table
from potstill.errors import SettingsError
from potstill.evaluation.evaluate import probabilities
from potstill.models.teacher import load_classifier
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.answers import restricted
from potstill.recipes.distilling import Distilling
from potstill.recipes.guidance import LogitsGuide

LABELS = ("a", "b", "c")
ANSWERS = ("logits", "labels")


@pytest.mark.parametrize("name", RECIPES)
def test_only_terms_on_answers_are_left(name: str) -> None:
    recipe = RECIPES[name]
    terms = [term for phase in recipe.phases for term in phase.terms if term.weight]
    options = {"wanted": {}, "why": "cannot be", "fix": "choose"}
    if not any(term.reads == "logits" for term in terms):
        with pytest.raises(SettingsError, match="nothing of it learns from a teacher's answers"):
            restricted(recipe, ANSWERS, **options)
        return
    made = restricted(recipe, ANSWERS, **options)
    kept = [term for phase in made.recipe.phases for term in phase.terms if term.weight]
    assert kept == [term for term in terms if term.reads in ANSWERS]
    assert set(made.left_out) == {term.name for term in terms} - {term.name for term in kept}
    assert len(made.recipe.phases) + len(made.phases) == len(recipe.phases)
    assert (made.recipe.general, made.recipe.copies) == (None, 0)


def test_a_weight_that_was_set_is_refused_and_one_of_the_recipe_left_out() -> None:
    options = {"why": "cannot be", "fix": "leave it out"}
    made = restricted(RECIPES["potstill"], ANSWERS, wanted={"hidden": None, "attention": 0.0}, **options)
    assert made.left_out == ("hidden", "attention")
    with pytest.raises(SettingsError, match=r"distill.weights.hidden = 2 cannot be; fix: leave it out"):
        restricted(RECIPES["potstill"], ANSWERS, wanted={"hidden": 2.0}, **options)
    with pytest.raises(SettingsError, match=r"distill.weights.hidden = \[1, 0\] cannot be"):
        restricted(RECIPES["potstill"], ANSWERS, wanted={"hidden": (1.0, 0.0)}, **options)


def first_step(student, terms, batches, logits):
    student.zero_grad()
    program = Distilling(student, LogitsGuide(logits), terms, torch.nn.ModuleDict(), batches)
    rows = program.batches(0)[0]
    values = program.step(rows)
    loss = sum(program.weights[name] * value.sum / value.count for name, value in values.items())
    loss.backward()
    return float(loss.detach()), {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("mode", "temperature"), [("logits", None), ("logits", 1.0), ("paper", None), ("potstill", 7)])
def test_probabilities_of_a_teacher_teach_as_its_logits_do(tmp_path, mode: str, temperature: float | None) -> None:
    draw = np.random.default_rng(0)
    words = ["good", "bad", "film", "plot", "the", "a"]
    texts = [" ".join(draw.choice(words, draw.integers(3, 9))) for _ in range(24)]
    logits = draw.normal(0, 2.5, (24, 3)).astype(np.float32)
    lines = [",".join(LABELS), *(",".join(map(repr, map(float, row))) for row in probabilities(logits))]
    (tmp_path / "scores.csv").write_text("\n".join(lines))
    scores = read_scores(read_table([tmp_path / "scores.csv"]), Layout("probabilities", LABELS, LABELS), LABELS)
    folder = tiny_model(tmp_path / "student", kind="bert", layers=1, hidden=16, heads=2)
    student = load_classifier(folder, LABELS, new_head=True)
    encodings = TextEncoder.from_folder(folder, max_length=16).encode(texts)
    batches = Batches(encodings, draw.integers(0, 3, 24), np.arange(24), 24, 0)
    recipe = restricted(RECIPES[mode], ANSWERS, wanted={}, why="", fix="").recipe
    terms = build_terms(recipe.phases[-1], student=1, teacher=1, mapping="uniform", temperature=temperature)
    loss, gradients = first_step(student, terms, batches, scores.logits)
    own, expected = first_step(student, terms, batches, logits)
    assert loss == pytest.approx(own, rel=1e-5)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-3, atol=1e-6), name
    # Other answers teach something else: the test can fail.
    assert first_step(student, terms, batches, scores.logits[::-1].copy())[0] != pytest.approx(own, rel=1e-3)
