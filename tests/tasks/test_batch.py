"""Batches of Hugging Face's kind: tokens and their mask go to the model by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gradpivot import CUP, Classification, ForgetSplit, unlearn
from gradpivot.tasks.batch import input_and_target

TOKENS, MASK, LABELS = (
    torch.tensor([[1, 2, 0], [3, 4, 5]]),
    torch.tensor([[1, 1, 0], [1, 1, 1]]),
    torch.tensor([0, 1]),
)


class TinyBert(nn.Module):
    """Takes and gives what a sequence classifier of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(12, 8), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        pooled = (self.embed(input_ids) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return SimpleNamespace(logits=self.head(pooled))


def test_tokens_go_with_their_mask_and_nothing_else():
    batch = {"input_ids": TOKENS, "attention_mask": MASK, "idx": LABELS, "labels": LABELS}
    inputs, targets = input_and_target(batch)
    assert inputs == {"input_ids": TOKENS, "attention_mask": MASK}
    assert targets is LABELS
    assert input_and_target({"input_ids": TOKENS, "label": LABELS})[0] is TOKENS


@pytest.mark.parametrize("more", [{}, {"attention_mask": MASK}, {"attention_mask": MASK, "token_type_ids": TOKENS}])
def test_a_model_is_called_by_name(more):
    model = TinyBert()
    logits, _ = Classification().logits(model, {"input_ids": TOKENS, **more, "labels": LABELS})
    torch.testing.assert_close(logits, model(TOKENS, more.get("attention_mask")).logits)


def sentences(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Sentences of different lengths: every token of class c is one of 4c … 4c + 3."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 7, (count,), generator=generator).tolist()
    return [
        {"input_ids": torch.randint(0, 4, (n,), generator=generator) + 4 * (i % 3), "labels": torch.tensor(i % 3)}
        for i, n in enumerate(lengths)
    ]


def pad(samples):
    """What transformers' DataCollatorWithPadding does."""
    tokens = nn.utils.rnn.pad_sequence([s["input_ids"] for s in samples], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(s["input_ids"]) for s in samples], batch_first=True)
    return {"input_ids": tokens, "attention_mask": mask, "labels": torch.stack([s["labels"] for s in samples])}


@pytest.fixture(scope="module")
def trained_bert() -> TinyBert:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TinyBert()
    optimizer, batch = torch.optim.Adam(model.parameters(), 0.05), pad(sentences(120, 0))
    for _ in range(60):
        optimizer.zero_grad()
        Classification().retain_loss(model, batch).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("kind", ["class", "random"])
def test_sentences_of_different_lengths_are_forgotten(kind, trained_bert):
    train, test = sentences(120, 0), sentences(60, 1)
    if kind == "class":
        split = ForgetSplit.by_class(train, test, 1, collate_fn=pad)
    else:
        split = ForgetSplit.random(train, test, 0.1, collate_fn=pad)
    result = unlearn(trained_bert, split, CUP(gamma=1.0, lr=0.05, epochs=10))
    assert result.diverged is None
    assert result.scores.ra > 0.9
    assert kind == "random" or result.scores.ua > 0.9
