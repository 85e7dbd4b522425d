"""Text classification, embeddings and language models: answers, distances, scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from seqto.errors import ConfigError
from seqto.model.batch import Batch
from seqto.tasks import scoring
from seqto.tasks.embedding import Embedding, pooled, spearman, unit
from seqto.tasks.language_model import KEPT, LanguageModel, divergence
from seqto.tasks.scoring import Scorer
from seqto.tasks.task import Answers, portable_form, task_from_json
from seqto.tasks.text_classification import TextClassification, f1, matthews
from seqto.tasks.token_classification import TokenClassification
from seqto.testing.suites import check_task


def batch_of(ids, lengths):
    return Batch({"tokens": np.array(ids)}, len(ids), lengths=np.array(lengths), ids="tokens")


# ------------------------------------------------------------------------------ classification


def test_text_classification_scores_by_hand():
    task = TextClassification(labels=("no", "yes"))
    logits = np.array([[2.0, 1], [0, 1], [0, 1], [3, 1]])
    answers = task.decode([logits])
    found = task.scores(answers, np.array([0, 1, 0, 1]))
    # named 0 1 1 0: one right of each class
    assert found == pytest.approx({"accuracy": 0.5, "f1": 0.5, "macro_f1": 0.5, "matthews": 0.0})
    assert next(iter(found)) == "accuracy"
    chosen = TextClassification(score="matthews").scores(answers, np.array([0, 1, 0, 1]))
    assert next(iter(chosen)) == "matthews"
    other = task.decode([logits[:, ::-1]])
    assert task.distance(answers, other).tolist() == [1, 1, 1, 1]
    check_task(TextClassification(), labels=np.arange(12) % 10)


def test_classes_of_tokens_by_hand():
    """Two texts of 3 tokens and 1; what lies behind the second is padding."""
    task = TokenClassification(labels=("O", "PER"))
    batch = batch_of([[5, 6, 7], [8, 0, 0]], [3, 1])
    want = np.array([[[4.0, 0], [0, 4], [4, 0]], [[0, 4], [4, 0], [4, 0]]])
    reference, _ = task.read([want], batch, None)
    assert reference.values["class"].tolist() == [0, 1, 0, 1]
    got = want.copy()
    got[0, 1] = [4, 0]  # one token of the first text
    got[1, 1:] = [0, 4]  # padding does not count
    answers, _ = task.read([got], batch, reference)
    assert task.distance(reference, answers).tolist() == pytest.approx([1 / 3, 0])
    assert task.weights(reference, answers).tolist() == [3, 1]
    # KL of (p, 1-p) from (1-p, p), p = 1 / (1 + e^-4), at most log 2
    share = 1 / (1 + math.exp(-4))
    gap = min((2 * share - 1) * 4, math.log(2))
    assert task.gaps(reference, answers).tolist() == pytest.approx([gap, 0], abs=1e-5)
    assert task.example(reference.take(np.array([0])), answers.take(np.array([0]))) == {
        "form": "text",
        "float": "O PER O",
        "candidate": "O O O",
    }
    assert task_from_json(portable_form(task)) == task


@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1), (1, 4, 3)])
def test_outputs_that_are_no_classes_of_tokens_are_refused(shape):
    with pytest.raises(ConfigError, match="'y'"):
        TokenClassification(labels=("O", "PER")).check([np.zeros(shape)], name="y")


def test_matthews_by_hand_and_against_correlation():
    # 6 samples: 2 of 3 right in each class
    labels, named = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 1, 0])
    assert matthews(named, labels) == pytest.approx(1 / 3)
    assert f1(named, labels) == pytest.approx(2 / 3)
    assert matthews(labels, labels) == pytest.approx(1)
    assert matthews(np.zeros(6, dtype=np.int64), labels) == 0
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    assert matthews(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_text_classification_refuses_what_does_not_fit():
    task = TextClassification(labels=("a", "b", "c"))
    with pytest.raises(ConfigError, match=r"has 2 scores a text, task.labels names 3"):
        task.check([np.zeros((1, 2))], name="logits")
    with pytest.raises(ConfigError, match="one score a class"):
        task.check([np.zeros((1, 7, 2))], name="logits")
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        TextClassification(score="acuracy")
    with pytest.raises(ConfigError, match="macro_f1"):
        TextClassification(labels=("a", "b", "c"), score="f1")


# ----------------------------------------------------------------------------------- embedding


def test_pooling_does_not_see_padding():
    values = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    lengths = np.array([4, 2])
    assert pooled(values, lengths, how="mean")[1].tolist() == values[1, :2].mean(axis=0).tolist()
    assert pooled(values, lengths, how="max")[1].tolist() == values[1, 1].tolist()
    assert pooled(values, lengths, how="last")[1].tolist() == values[1, 1].tolist()
    assert pooled(values, lengths, how="cls")[1].tolist() == values[1, 0].tolist()
    task = Embedding(normalize=False)
    answers, _ = task.read([values], batch_of(np.zeros((2, 4)), lengths), None)
    assert answers.values["vector"][1].tolist() == values[1, :2].mean(axis=0).tolist()


def pairs(left, right) -> Answers:
    return Answers({"vector": np.stack([unit(np.array(left)), unit(np.array(right))], axis=1)})


def test_an_answer_is_the_nearest_right_text():
    gallery = [[1.0, 0], [0, 1.0], [-1.0, 0]]
    want = pairs([[1.0, 0.1], [0.1, 1], [-1, 0.1]], gallery)
    got = pairs([[1.0, 0.1], [1.0, 0.9], [0.1, 1]], gallery)
    assert Embedding().distance(want, got).tolist() == [0, 1, 1]
    assert Embedding(gallery="right").distance(want, want).sum() == 0


def test_a_twin_of_the_neighbour_is_the_same_answer():
    twins = [[1.0, 0], [1.0, 1e-7], [-1.0, 0]]
    want = pairs([[1.0, -0.1], [1, 0.1], [-1, 0]], twins)
    got = pairs([[1.0, 0.1], [1, -0.1], [-1, 0]], [[1.0, 1e-7], [1.0, 0], [-1.0, 0]])
    assert Embedding().distance(want, got).sum() == 0


def test_single_texts_have_the_nearest_other_one():
    vectors = unit(np.array([[1.0, 0], [0.9, 0.1], [0, 1.0], [0.1, 0.9]]))
    moved = unit(np.array([[1.0, 0], [0.3, 0.7], [0, 1.0], [0.1, 0.9]]))
    want, got = Answers({"vector": vectors}), Answers({"vector": moved})
    # the last two stay neighbours; without its neighbour, the first is still nearest to the second
    assert Embedding().distance(want, got).tolist() == [0, 1, 0, 0]
    with pytest.raises(ConfigError, match="needs pairs"):
        Embedding(gallery="right").distance(want, got)


def test_spearman_is_scipys_and_scores_pairs():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 40) / 1.0
    answers = pairs(rng.standard_normal((40, 8)), rng.standard_normal((40, 8)))
    vectors = answers.values["vector"]
    cosine = (vectors[:, 0] * vectors[:, 1]).sum(axis=1)
    found = Embedding().scores(answers, labels)["spearman"]
    assert found == pytest.approx(stats.spearmanr(cosine, labels).statistic)
    assert spearman(np.ones(5), np.arange(5)) == 0


def test_damage_of_an_embedding_follows_the_cosine():
    rng = np.random.default_rng(1)
    vectors = unit(rng.standard_normal((30, 6)))
    task = Embedding()
    reference = scoring.reference_from(
        task,
        "evaluation",
        [scoring.decode(task, [vectors])],
        labels=None,
        about={"output": {}, "caution": None},
    )
    noisy = unit(vectors + 0.1 * rng.standard_normal((30, 6)))
    scorer = Scorer(task, reference, device="d", rows=30)
    scorer.add(scoring.decode(task, [noisy]))
    found = scorer.measurement()
    cosine = (vectors * noisy).sum(axis=1)
    assert found.figures["cosine"] == pytest.approx(cosine.mean(), abs=1e-6)
    assert found.damage == pytest.approx(2 * (1 - cosine).mean() / reference.variance, rel=1e-4)
    assert found.loss.samples == 30


# ------------------------------------------------------------------------------- language model


def logits_of(rng, rows, tokens, words):
    return (rng.standard_normal((rows, tokens, words)) * 3).astype(np.float32)


def test_perplexity_is_that_of_an_independent_computation():
    rng = np.random.default_rng(2)
    ids, lengths = rng.integers(0, 50, (3, 9)), [9, 5, 2]
    logits = logits_of(rng, 3, 9, 50)
    task = LanguageModel()
    answers, _ = task.read([logits], batch_of(ids, lengths), None)
    losses = []
    for row, length in enumerate(lengths):
        for place in range(length - 1):
            shares = [math.exp(x) for x in logits[row, place].tolist()]
            losses.append(-math.log(shares[ids[row, place + 1]] / sum(shares)))
    assert answers.lengths.tolist() == [8, 4, 1]
    expected = math.exp(sum(losses) / len(losses))
    assert task.scores(answers, None)["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_loss_is_the_share_of_all_positions():
    rng = np.random.default_rng(3)
    ids, lengths = rng.integers(0, 7, (2, 6)), np.array([6, 3])
    float_logits = logits_of(rng, 2, 6, 7)
    moved = float_logits.copy()
    moved[0, 1] = -moved[0, 1]  # one of 5 positions of the first text
    moved[1, 2:] = 9 * rng.standard_normal((4, 7))  # behind the second text
    task, batch = LanguageModel(), batch_of(ids, lengths)
    found = _measured(task, batch, float_logits, moved)
    assert found.loss.value == pytest.approx(1 / 7, abs=1e-6)
    assert found.damage > 0
    same = _measured(task, batch, float_logits, float_logits)
    assert (same.loss.value, same.damage) == (0, pytest.approx(0, abs=1e-6))
    assert same.scores == pytest.approx(same.baseline_scores)
    assert found.score_kinds["perplexity"].lower_is_better


def _measured(task, batch, float_logits, moved):
    parts = [scoring.decode(task, [float_logits], batch=batch)]
    about = {"output": {}, "caution": None}
    reference = scoring.reference_from(task, "evaluation", parts, labels=None, about=about)
    scorer = Scorer(task, reference, device="d", rows=len(float_logits))
    answers = reference.decoded.answers
    scorer.add(scoring.decode(task, [moved], batch=batch, reference=answers))
    return scorer.measurement(intervals=True)


def test_kl_of_a_small_vocabulary_is_exact_and_of_a_large_one_a_lower_bound():
    rng = np.random.default_rng(4)
    for words in (KEPT - 2, 40 * KEPT):
        ids, lengths = rng.integers(0, words, (2, 5)), np.array([5, 4])
        a, b = logits_of(rng, 2, 5, words), logits_of(rng, 2, 5, words)
        task, batch = LanguageModel(), batch_of(ids, lengths)
        want, _ = task.read([a], batch, None)
        got, _ = task.read([b], batch, want)
        exact = []
        for row, length in enumerate(lengths):
            p, q = (_softmax(x[row, : length - 1].astype(np.float64)) for x in (a, b))
            exact += (p * np.log(p / q)).sum(axis=1).tolist()
        bounded = np.minimum(exact, np.log(words))
        if words < KEPT:
            np.testing.assert_allclose(got.values["kl"], bounded, rtol=1e-4)
        else:
            assert (got.values["kl"] <= bounded + 1e-5).all()
        kept = sum(x.nbytes for x in want.values.values())
        assert kept <= (KEPT * 8 + 16) * len(exact)  # token, loss, uniform, and the text's own


def _softmax(x):
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


finite = st.floats(-40, 0, width=32)


@given(
    hnp.arrays(np.float64, (4, 6), elements=finite), hnp.arrays(np.float64, (4, 6), elements=finite)
)
def test_divergence_is_bounded_and_zero_of_itself(a, b):
    a, b = (np.log(_softmax(x) * 0.9) for x in (a, b))
    found = divergence(a, b, most=3.0)
    assert ((found >= 0) & (found <= 3)).all()
    np.testing.assert_allclose(divergence(a, a, most=3.0), 0, atol=1e-9)


def test_a_model_that_breaks_is_judged_and_does_not_raise():
    rng = np.random.default_rng(5)
    ids, lengths = rng.integers(0, 7, (1, 4)), np.array([4])
    good = logits_of(rng, 1, 4, 7)
    task, batch = LanguageModel(), batch_of(ids, lengths)
    for value in (np.nan, np.inf, -np.inf):
        found = _measured(task, batch, good, np.full_like(good, value))
        assert np.isfinite(found.scores["perplexity"])
        assert np.isfinite(found.damage)


def test_a_language_model_without_texts_is_refused():
    with pytest.raises(ConfigError, match=r"data\.texts"):
        LanguageModel().decode([np.zeros((1, 3, 5))])
    with pytest.raises(ConfigError, match="vocabulary"):
        LanguageModel().check([np.zeros((1, 5))], name="y")


@pytest.mark.parametrize(
    "task", [LanguageModel(), Embedding(), TextClassification(labels=("a", "b"))]
)
def test_tasks_can_be_made_again_in_a_worker(task):
    form = portable_form(task)
    assert form is not None
    assert task_from_json(form) == task


def test_examples_of_a_language_model_name_the_tokens_that_differ(tmp_path):
    pytest.importorskip("tokenizers")
    words = ["a", "cat", "dog", "sat", "ran"]
    file = tmp_path / "tokenizer.json"
    file.write_text(word_tokenizer(words))
    task = LanguageModel().for_tokenizer({"file": str(file)})
    ids = [[0, 1, 3, 0]]  # a cat sat a
    a = np.zeros((1, 4, 5), np.float32)
    a[0, 0, 2] = a[0, 1, 3] = a[0, 2, 0] = 9
    b = a.copy()
    b[0, 1, 4] = 20  # behind "a cat", ran instead of sat
    batch = batch_of(ids, [4])
    want, _ = task.read([a], batch, None)
    got, _ = task.read([b], batch, want)
    assert task.example(want, got) == {
        "form": "next",
        "changed": 1,
        "places": [{"before": "cat", "text": " sat", "float": " sat", "candidate": " ran"}],
    }
    bare = LanguageModel().example(want, got)["places"][0]
    assert (bare["float"], bare["candidate"]) == (" 3", " 4")


def word_tokenizer(words):
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="a"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made.to_str()


def test_examples_of_an_embedding_are_both_nearest_texts():
    task = Embedding()
    # pairs: left i is nearest to right i in the float model; the candidate swaps 0 and 1
    want = Answers({"vector": unit(np.stack([np.eye(3), np.eye(3) + 0.1], axis=1))})
    swapped = want.values["vector"].copy()
    swapped[:2, 0] = swapped[1::-1, 0]
    got = Answers({"vector": swapped})
    assert task.distance(want, got).tolist() == [1, 1, 0]
    shown = task.corpus_examples(want, got, [0, 1])
    assert [(s["float"]["row"], s["candidate"]["row"], s["side"]) for s in shown] == [
        (0, 1, 1),
        (1, 0, 1),
    ]
    alone = Embedding(gallery="others").corpus_examples(want, got, [2])[0]
    assert alone["side"] == 0


def test_a_scorer_gives_examples_of_a_whole_corpus_by_row():
    task = Embedding()
    vectors = unit(np.stack([np.eye(3), np.eye(3) + 0.1], axis=1))
    swapped = vectors.copy()
    swapped[:2, 0] = swapped[1::-1, 0]
    whole = scoring.Decoded(Answers({"vector": vectors}), vectors.reshape(3, -1))
    about = {"output": {}, "caution": None}
    reference = scoring.reference_from(task, "report", [whole], labels=None, about=about)
    order = np.array([2, 0, 1])
    scorer = Scorer(task, reference, device="d", rows=3, order=order)
    found = swapped[order]
    scorer.add(scoring.Decoded(Answers({"vector": found}), found.reshape(3, -1)))
    shown = scorer.examples(5)
    assert [(s["row"], s["float"]["row"], s["candidate"]["row"]) for s in shown] == [
        (0, 0, 1),
        (1, 1, 0),
    ]
