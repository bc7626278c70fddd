from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from gradpivot import ForgetSplit
from gradpivot.data import identifiers
from gradpivot.data.identifiers import find_records, read_entries, read_indices
from gradpivot.errors import GradPivotError

BOM = b"\xef\xbb\xbf"
CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NAMES = CELLS.map(str.strip).filter(lambda name: name and "#" not in name and len(name.split("\n")) == 1)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Write bytes or text to a file of this name."""
    folder = tmp_path_factory.mktemp("lists")

    def write(content: str | bytes, name: str = "list.txt") -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@given(names=st.lists(NAMES.filter(lambda name: "\r" not in name)), end=ENDS, bom=st.sampled_from([b"", BOM]))
def test_a_text_file_gives_back_what_was_written(file, names, end, bom):
    lines = [f"  {name} # whose" for name in names]
    content = end.join(["# requests", "", *lines, ""])
    assert read_entries(file(bom + content.encode())) == names


@given(
    rows=st.lists(st.tuples(CELLS, CELLS)),
    column=st.sampled_from([0, 1]),
    delimiter=st.sampled_from([",", ";", "\t"]),
    bom=st.sampled_from([b"", BOM]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_a_column_gives_back_what_was_written(file, rows, column, delimiter, bom, end):
    """Cells with quotes, delimiters, line ends and comment signs are read back unchanged."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("customer", "asked on"), *rows])
    path = file(bom + text.getvalue().encode(), "list.csv")
    name = ("customer", "asked on")[column]
    assert read_entries(f"{path}:{name}") == [row[column].strip() for row in rows]


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1)), ENDS)
def test_indices_are_read_as_written(file, indices, end):
    path = file(end.join(map(str, indices)))
    assert read_indices(path) == indices
    assert read_indices(file(" ".join(map(str, indices)))) == indices


@given(st.binary(max_size=60), st.sampled_from(["any.txt", "any.csv"]), st.sampled_from(["", ":a"]))
def test_any_bytes_are_read_or_refused_in_one_short_line(file, content, name, column):
    path = f"{file(content, name)}{column}"
    for read in (read_entries, read_indices):
        refused = ""
        try:
            read(path)
        except GradPivotError as error:
            refused = str(error)
        assert "\n" not in refused
        assert len(refused) < 300 + len(path)


@given(st.lists(st.integers(0, 5), min_size=1), st.sets(st.integers(0, 5), min_size=1))
def test_records_are_all_samples_with_one_of_the_ids(owners, ids):
    wanted = ids & set(owners)
    found = find_records([f" {one} " for one in wanted], owners, len(owners))
    assert found == [index for index, owner in enumerate(owners) if owner in wanted]
    if ids - wanted:
        with pytest.raises(GradPivotError, match=f"{len(ids - wanted)} of {len(ids)} ids belong to no training sample"):
            find_records(ids, owners, len(owners))


def test_a_comment_needs_white_space_before_it(file):
    assert read_entries(file("A#1\nB # twice\n#C\n\t# D\n")) == ["A#1", "B"]


def test_a_blank_line_of_a_csv_file_is_no_row_and_a_missing_cell_is_empty(file):
    path = file("id,when\n7,May\n\n,June\n8\n", "blank.csv")
    assert read_entries(f"{path}:id") == ["7", "", "8"]
    assert read_entries(f"{path}:when") == ["May", "June", ""]


def test_names_may_contain_colons(file):
    path = file("ns:id,b\n1,2\n", "odd:name.csv")
    assert read_entries(f"{path}:ns:id") == ["1"]
    assert read_entries(file("3\n", "plain:b")) == ["3"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\xff\xfe1\x002\x00", "is not UTF-8 text"),
        ("a.txt", "Müller\n".encode("latin-1"), "is not UTF-8 text"),
        ("a.csv", b"id,b\n1,2\n", "has several columns: 'id', 'b'; name one as FILE:COLUMN"),
        ("a.csv:idd", b"id,b\n1,2\n", "has no column 'idd'; did you mean 'id'\\? Its columns are 'id', 'b'"),
        ("a.csv:x", b"", "has no column 'x'. Its columns are "),
        ("a.csv:id", b"id,id\n1,2\n", "has 2 columns 'id'; rename all but one"),
        ("a.csv:id", b'id,b\n1,"2\n', r"line 2: unexpected end of data"),
        ("none.txt", None, "cannot read .*none.txt: No such file"),
    ],
)
def test_what_cannot_be_read_is_one_line(file, tmp_path, name, content, message):
    path = tmp_path / name if content is None else file(content, name.partition(":")[0]).parent / name
    with pytest.raises(GradPivotError, match=message):
        read_entries(path)


def test_a_file_too_large_is_not_read(file, monkeypatch):
    monkeypatch.setattr(identifiers, "MAX_BYTES", 10)
    assert read_entries(file("1234567890")) == ["1234567890"]
    with pytest.raises(GradPivotError, match="larger than 10 bytes"):
        read_entries(file("12345678901"))


@pytest.mark.parametrize("word", ["C-17", "9" * 30, "9" * 5000, "1.5"])
def test_what_is_no_index_is_named_with_the_way_to_ids(file, word):
    with pytest.raises(GradPivotError, match=f"has '{word[:20]}.*--ids FILE") as refused:
        read_indices(file(f"3\n{word}\n"))
    assert len(str(refused.value)) < 300


def test_errors_about_ids_are_short():
    with pytest.raises(GradPivotError, match="there are 2 ids for 3 training samples; give one"):
        find_records(["a"], ["a", "b"], 3)
    with pytest.raises(GradPivotError, match="an id to forget is empty"):
        find_records(["a", " "], ["a", ""], 2)
    with pytest.raises(GradPivotError, match="900 of 901 ids belong to no training sample: '0', '1', '2', …; correct"):
        find_records(["a", *range(900)], ["a"], 1)
    with pytest.raises(GradPivotError) as refused:
        find_records(["x" * 10_000], ["a"], 1)
    assert len(str(refused.value)) < 200


def test_a_split_by_id_forgets_all_that_an_id_stands_for():
    train = torch.zeros(5, 2), torch.arange(5) % 2
    split = ForgetSplit.by_id(train, train, [17, "B-2", 17], ["17", "x", "B-2", 17, None])
    assert split.forget_indices.tolist() == [0, 2, 3]
    assert split.hash == ForgetSplit.by_index(train, train, [3, 0, 2]).hash
    assert ForgetSplit.by_id(train, train, "B-2", ["17", "x", "B-2", 17, None]).forget_indices.tolist() == [2]
    with pytest.raises(GradPivotError, match="4 ids for 5 training samples"):
        ForgetSplit.by_id(train, train, ["17"], ["17", "x", "B-2", 17])
