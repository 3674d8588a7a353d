"""Names are checked at the door, and shown without being obeyed."""

from __future__ import annotations

import pytest

from consentroid.core.errors import InvalidInput
from consentroid.core.extras import remedy, require
from consentroid.core.names import check_name, visible


@pytest.mark.parametrize("name", ["berlin", "São Paulo", "site 1", "a.b_c-d", "東京", "x" * 100])
def test_names_of_sites(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["sepal length (cm)", "fat %", "CD4/CD8", "a:b", "50+", "हिन्दी"])
def test_names_of_columns_may_have_units(name: str) -> None:
    assert check_name(name, "column") == name
    with pytest.raises(InvalidInput, match="rename it"):
        check_name(name)


@pytest.mark.parametrize("kind", ["site", "column"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "empty name"),
        ("  ", "empty name"),
        ("x" * 101, "has 101 characters; use at most 100"),
        (" a", "begins or ends with a space"),
        ("x[/b]", r"character '\['"),
        ("a\nVerified: all", r"character '\\n'"),
        ("\x1b[31m", r"character '\\x1b'"),
        ("a\u202eb", r"character '\\u202e'"),
        ("<b>", "character '<'"),
        ("a\\b", "character"),
    ],
)
def test_what_is_refused(name: str, said: str, kind: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        check_name(name, kind, "'a.csv'")  # type: ignore[arg-type]
    assert str(caught.value).startswith("'a.csv': ")
    assert str(caught.value) == visible(str(caught.value))


def test_a_missing_extra_names_its_command() -> None:
    with pytest.raises(InvalidInput, match=r"drawing needs no_such_thing; .* pip install .consentroid\[plots\]"):
        require("no_such_thing.part", "plots", "drawing")


def test_names_of_sites_are_names_of_files() -> None:
    with pytest.raises(InvalidInput, match="begins or ends with a full stop"):
        check_name("..")


def test_an_import_that_failed_elsewhere_names_its_extra() -> None:
    assert remedy(ModuleNotFoundError(name="nvflare.apis")) == (
        "this needs nvflare; install it with: pip install 'consentroid[federation]'"
    )
    assert remedy(ModuleNotFoundError(name="consentroid.nowhere")) is None
