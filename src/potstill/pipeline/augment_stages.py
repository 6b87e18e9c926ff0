"""The stages that multiply training texts: a masked LM that reads labels, the candidates for words, the new texts.

Candidates are a stage of their own, so that other copies, another probability or another seed never run a masked LM.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from potstill.data.augment import ByPieces, Proposer, Replacing, replaced, replaced_by_label, sentences_of
from potstill.data.batching import Batches
from potstill.data.candidates import StoredCandidates, write_candidates
from potstill.data.encoding import TextEncoder
from potstill.data.examples import Examples, is_labelled
from potstill.data.masking import MaskRule, MaskVocabulary
from potstill.data.neighbours import StaticNeighbours
from potstill.data.new_texts import KEEPS_LABEL, NewTexts, combined
from potstill.data.recombine import recombined
from potstill.data.sampling import masked_words, sampled_ngrams
from potstill.data.schema import evaluation_keys, examples_without
from potstill.data.stopwords import STOP_WORDS, read_stop_words
from potstill.models.dropout import set_dropout
from potstill.models.loading import longest_input
from potstill.models.masked_lm import MaskedLMProposer, load_masked_lm
from potstill.models.vocabulary import whole_words, word_rows
from potstill.pipeline.budget import Budget
from potstill.pipeline.job import Job
from potstill.pipeline.results import read_split, split_of, task_of
from potstill.pipeline.run import Context
from potstill.pipeline.teach import save_model
from potstill.pipeline.training import phase_facts, run_training
from potstill.pretraining import ConditionalMaskedLM, label_first
from potstill.storage import write_json
from potstill.training import Schedule

__all__ = ["CANDIDATES", "CONDITIONAL", "augment_stage", "candidates_stage", "conditional_stage"]

CONDITIONAL = "conditional-masked-lm"
CANDIDATES = "candidates"
_BATCH_SIZE, _RATE = 32, 5e-5
_LENGTH = 128


def conditional_stage(context: Context, job: Job, budget: Budget) -> None:
    """Train the masked LM on the training texts, each behind its label's name."""
    source = _model(job)
    model, labels, train = load_masked_lm(source), task_of(context).labels, split_of(context, "train")
    set_dropout(model, on=True)
    encoder = TextEncoder.from_folder(source, max_length=min(_LENGTH, longest_input(model.config)))
    encodings, before = label_first(encoder, train.texts, [labels[label] for label in train.labels])
    ids = train.example_id[encodings.example]
    batches = Batches(encodings, np.full(len(encodings), -1), ids, _BATCH_SIZE, job.settings.run.seed)
    vocabulary = MaskVocabulary.of(encoder.tokenizer)
    trained = run_training(
        context,
        job.conditions,
        ConditionalMaskedLM(model, batches, before, MaskRule(), vocabulary),
        stage=CONDITIONAL,
        phase="masked",
        planned=job.settings.augment.epochs * -(-len(encodings) // _BATCH_SIZE),
        schedule=lambda steps: Schedule(steps, _RATE, warmup=0.1),
        budget=budget,
    )
    save_model(model, context.folder / "model", source)
    facts = phase_facts(trained, len(encodings), _BATCH_SIZE, [("masked", 1.0, 1.0)])
    write_json(context.folder / "training.json", {"masked": facts})


def candidates_stage(context: Context, job: Job) -> None:
    """Write a folder of candidates for each method whose words a masked LM proposes.

    Shards grow in the stage's scratch, so that a run that was stopped goes on with the next one.
    """
    train = split_of(context, "train")
    parts: dict[str, tuple[Examples, partial[Proposer]]] = {}
    for method in job.augmenting.proposing:
        if method == "masked-lm":
            parts[method] = (train, partial(_by_pieces, context, job))
        else:
            for label, name in enumerate(task_of(context).labels):
                own = train.select(np.flatnonzero(train.labels == label))
                parts[f"{method}/{label}"] = (own, partial(_by_label, context, job, name))
    for name, (examples, make) in parts.items():
        context.report.stage(CANDIDATES, name)
        folder = context.scratch / name
        sentences = sentences_of(examples)
        before = write_candidates(folder, sentences, make(), stop_words=_stop_words(job), report=context.report)
        if before:
            context.report.note(f"{name}: {before:,} of {len(sentences):,} sentences were there before")
        shutil.copytree(folder, context.folder / name)


def augment_stage(context: Context, job: Job) -> None:
    """Write the training texts with what each method made of them; of no method, the texts alone.

    A new text that stands in dev or test is left out.
    """
    train, chosen = split_of(context, "train"), job.augmenting
    made = []
    for method in chosen.methods:
        context.report.stage("augment", method)
        made.append(_made(context, job, method, train))
    whole = combined(train, made)
    keys = evaluation_keys(*(read_split(context.done["data"], name) for name in ("dev", "test")))
    whole = examples_without(whole, keys) if made else train
    whole.write(context.folder / "train.arrow")
    labelled = bool(set(chosen.methods) & KEEPS_LABEL)
    facts = {
        "methods": list(chosen.methods),
        "copies": chosen.copies,
        "made": len(whole) - len(train),
        "labelled": int(np.count_nonzero(is_labelled(whole.labels))) - len(train) if labelled else 0,
    }
    write_json(context.folder / "facts.json", facts)
    named = ", ".join(chosen.methods) or "none"
    context.report.note(f"{facts['made']:,} texts made by {named} from {len(train):,}")


def _made(context: Context, job: Job, method: str, train: Examples) -> NewTexts:
    augment, report = job.settings.augment, context.report
    copies = job.augmenting.copies
    drawn: dict[str, Any] = {"seed": job.settings.run.seed, "copies": copies, "report": report}
    if method == "masking":
        tokenizer = Tokenizer.from_file(str(job.teacher.paths[0] / "tokenizer.json"))
        mask = str(tokenizer.id_to_token(MaskVocabulary.of(tokenizer).mask_token_id))
        return masked_words(train, mask, probability=augment.mask_probability, **drawn)
    if method == "ngram":
        return sampled_ngrams(train, longest=augment.longest_ngram, **drawn)
    if method == "recombine":
        return recombined(train, **drawn)
    rule = Replacing(copies, augment.probability, _stop_words(job), augment.candidates)
    replacing: dict[str, Any] = {"seed": job.settings.run.seed, "rule": rule, "method": method, "report": report}
    if method == "conditional-masked-lm":
        folder = context.done[CANDIDATES] / method
        stored = {label: StoredCandidates(folder / str(label)) for label in range(len(task_of(context).labels))}
        return replaced_by_label(train, stored, **replacing)
    proposer: Proposer
    if method == "masked-lm":
        proposer = StoredCandidates(context.done[CANDIDATES] / method)
    else:
        proposer = _static(context, job, job.teacher.paths[0], glove=method == "glove")
    return replaced(train, proposer, **replacing)


def _model(job: Job) -> Path:
    assert job.augmenting.model is not None
    return job.augmenting.model.paths[0]


def _stop_words(job: Job) -> frozenset[str]:
    named = job.settings.augment.stop_words
    return read_stop_words(Path(named)) if named else STOP_WORDS


def _static(context: Context, job: Job, model: Path, *, glove: bool) -> StaticNeighbours:
    """Nearest words: in the GloVe file, or in the model's own table of embeddings."""
    most = job.settings.augment.candidates
    if glove:
        return StaticNeighbours.from_glove(Path(str(job.settings.augment.vectors)), k=most, report=context.report)
    words, rows = word_rows(model, Tokenizer.from_file(str(model / "tokenizer.json")))
    return StaticNeighbours.from_vectors(words, np.asarray(rows, dtype=np.float32), k=most)


def _by_pieces(context: Context, job: Job) -> Proposer:
    """Algorithm 1's: the masked LM for words of one piece, nearest words for the others."""
    model, settings = _model(job), job.settings
    proposer = MaskedLMProposer.load(
        model, candidates=settings.augment.candidates, precision=settings.distill.precision
    )
    static = _static(context, job, model, glove=settings.augment.vectors is not None)
    return ByPieces(proposer, static, whole_words(Tokenizer.from_file(str(model / "tokenizer.json"))))


def _by_label(context: Context, job: Job, label: str) -> Proposer:
    model = context.done[CONDITIONAL] / "model"
    return MaskedLMProposer(
        load_masked_lm(model),
        Tokenizer.from_file(str(model / "tokenizer.json")),
        candidates=job.settings.augment.candidates,
        condition=label,
        precision=job.settings.distill.precision,
    )
