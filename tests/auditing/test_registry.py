"""Attacks are found by being there, and names are taken once."""

import pytest

from gradpivot.auditing import registry
from gradpivot.auditing.attack import LEVELS
from gradpivot.errors import GradPivotError


def test_a_level_includes_the_cheaper_ones():
    quick, standard, full = ({attack.name for attack in registry.attacks_up_to(level)} for level in LEVELS)
    assert quick < standard < full
    assert "margin_auc" in quick
    assert "finetune" in standard - quick
    assert "ulira" in full - standard


def test_a_name_is_taken_once(monkeypatch):
    first, *_ = registry.all_attacks()
    twin = type(first)(name=first.name, title="Twin", question="knowledge", meaning="…", measure=first.measure)
    monkeypatch.setattr(registry, "_loaded", lambda: iter([first, twin]))
    registry.all_attacks.cache_clear()
    with pytest.raises(GradPivotError, match="two attacks named"):
        registry.all_attacks()
    monkeypatch.undo()
    registry.all_attacks.cache_clear()


def test_every_attack_is_described():
    names = [attack.name for attack in registry.all_attacks()]
    assert len(names) == len(set(names))
    assert all(attack.meaning.endswith(".") and attack.threat for attack in registry.all_attacks())
