"""Find recipes, built in by name or as files, and resolve what they extend. No torch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from gradpivot.errors import GradPivotError, did_you_mean
from gradpivot.experiments.recipes.recipe import repeated
from gradpivot.experiments.recipes.spaces import is_range
from gradpivot.runtime import parse_yaml

__all__ = ["KEYS", "list_recipes", "read_recipe_text", "recipe_content"]

KEYS = ("schema", "title", "about", "extends", "problem", "forget", "seeds", "reference", "protocols")
"""Allowed keys of a recipe."""
_MERGE = "tag:yaml.org,2002:merge"


def list_recipes() -> list[str]:
    """Names of the built-in recipes that have a problem."""
    if not _folder().is_dir():
        return []
    found = [path.name.removesuffix(".yaml") for path in _folder().iterdir() if path.name.endswith(".yaml")]
    return sorted(name for name in found if "problem" in recipe_content(name))


def read_recipe_text(name: str | Path) -> str:
    """The text of a built-in recipe or a file.

    Raises:
        GradPivotError: If there is no such recipe; the message suggests a name.
    """
    if _is_built_in(name):
        return (_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not _is_file(path):
        hint = did_you_mean(str(name), list_recipes())
        raise GradPivotError(
            f"there is no recipe {str(name)!r}{hint} Choose from {', '.join(list_recipes())}, or give a YAML file"
        )
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise GradPivotError(f"cannot read the recipe {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise GradPivotError(f"the recipe {path} is not UTF-8 text") from None
    except ValueError as error:
        raise GradPivotError(f"cannot read the recipe {str(path)!r}: {error}") from None


def recipe_content(name: str | Path, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """The content of a recipe merged over the recipe it extends."""
    if _identity(name) in map(_identity, seen):
        raise GradPivotError(f"recipe {seen[0]} extends itself: {' → '.join((*seen, str(name)))}")
    try:
        content = parse_yaml(read_recipe_text(name), _Loader)
    except GradPivotError:
        raise
    except ValueError as error:
        raise GradPivotError(f"recipe {name} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise GradPivotError(f"recipe {name} must be a mapping with {', '.join(KEYS)}")
    parent = content.pop("extends", None)
    if parent is None:
        return content
    below = recipe_content(_parent_path(name, str(parent)), (*seen, str(name)))
    # Replace forget as a whole: merging classes of one recipe with a fraction of another makes no sense.
    if "forget" in content:
        below.pop("forget", None)
    return _merge(below, content)


def _folder() -> Traversable:
    return resources.files("gradpivot.experiments.recipes") / "files"


def _parent_path(name: str | Path, parent: str) -> str:
    """The parent: a built-in name, or a file relative to the recipe that extends it."""
    return parent if _is_built_in(parent) else str(Path(name).parent / parent)


def _identity(name: str | Path) -> str:
    """A canonical name for a recipe."""
    try:
        return str(name) if _is_built_in(name) else str(Path(name).resolve())
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a loop of symbolic links
        return str(name)


def _is_built_in(name: str | Path) -> bool:
    return _is_file(_folder() / f"{name}.yaml")


def _is_file(path: Traversable) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # the name is too long, or has a null character
        return False


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``above`` over ``below`` recursively; an explicit null removes a key."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(old, dict) and isinstance(value, Mapping) and not is_range(value):
            merged[key] = _merge(old, value)
        else:
            merged[key] = value
    return merged


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML loader that rejects duplicate keys, which would silently drop a series."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping and check that its keys are unique."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
        for key in repeated(key for key in keys if isinstance(key, Hashable)):
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping
