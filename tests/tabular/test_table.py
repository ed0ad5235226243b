"""Reading tables: every way of writing one gives the same table, and a bad file is refused by name, with the reason."""

import bz2
import gzip
import lzma
import os
import re
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

import awn
from awn.errors import TableError
from awn.tabular.read.table import read_table

TABLE = pd.DataFrame(
    {"size": [1.5, 2.25, -3.0], "what, else": ["plain", 'a "quoted", word', "two\nlines"], "n": [1, 2, 3]}
)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    """What an error says of a file: it must name it."""
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert isinstance(caught.value, awn.AwnError)
    assert isinstance(caught.value, ValueError)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_delimiter_and_line_end_gives_the_same_table(
    tmp_path: Path, delimiter: str, newline: str, ending: str
) -> None:
    table = TABLE.replace("two\nlines", "one line")
    path = write(tmp_path, "table" + ending, table.to_csv(sep=delimiter, index=False, lineterminator=newline))
    assert_frame_equal(read_table(path), table)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("packed", PACKERS)
def test_packed_text_is_unpacked(tmp_path: Path, packed: str) -> None:
    path = write(tmp_path, "table.csv" + packed, PACKERS[packed](TABLE.to_csv(index=False).encode()))
    assert_frame_equal(read_table(path), TABLE)


def test_zip_with_one_file_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "table.csv.zip", "w") as archive:
        archive.writestr("inside.csv", TABLE.to_csv(index=False))
    assert_frame_equal(read_table(tmp_path / "table.csv.zip"), TABLE)
    with zipfile.ZipFile(tmp_path / "table.csv.zip", "a") as archive:
        archive.writestr("other.csv", "a,b\n1,2\n")
    assert "it must contain one table, but contains 'inside.csv', 'other.csv'" in refusal(tmp_path / "table.csv.zip")


@pytest.mark.parametrize("name", ["table.parquet", "table.pq", "TABLE.PARQUET", "table.parquet.brotli"])
def test_parquet(tmp_path: Path, name: str) -> None:
    TABLE.to_parquet(tmp_path / name, compression="brotli")
    assert_frame_equal(read_table(tmp_path / name), TABLE)


def test_parquet_packed_again(tmp_path: Path) -> None:
    TABLE.to_parquet(tmp_path / "table.parquet")
    path = write(tmp_path, "table.parquet.gz", gzip.compress((tmp_path / "table.parquet").read_bytes()))
    assert_frame_equal(read_table(path), TABLE)


def test_parquet_types_that_pandas_holds_as_objects_become_plain(tmp_path: Path) -> None:
    content = pa.table({"pay": [Decimal("1.50"), Decimal("2.25")], "day": pa.array([0, 366], pa.date32())})
    pa.parquet.write_table(content, tmp_path / "table.parquet")
    read = read_table(tmp_path / "table.parquet")
    assert read["pay"].tolist() == [1.5, 2.25]
    assert read["day"].tolist() == [pd.Timestamp("1970-01-01"), pd.Timestamp("1971-01-02")]


def test_parquet_index_is_a_column_if_it_has_a_name(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1, 2]}, index=pd.Index([10, 20], name="key"))
    table.to_parquet(tmp_path / "named.parquet")
    table.rename_axis(None).to_parquet(tmp_path / "unnamed.parquet")
    assert read_table(tmp_path / "named.parquet").to_dict("list") == {"key": [10, 20], "a": [1, 2]}
    assert read_table(tmp_path / "unnamed.parquet").to_dict("list") == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("\ufeffa,b\n1,2\n", {"a": [1], "b": [2]}, id="byte order mark"),
        pytest.param('\ufeff"a",b\n1,2\n', {"a": [1], "b": [2]}, id="byte order mark before a quote"),
        pytest.param('a, b\n1, "x, y"\n', {"a": [1], "b": ["x, y"]}, id="space after the delimiter"),
        pytest.param("\n\na,b\n\n1,2\n   \n3,4\n\n", {"a": [1, 3], "b": [2, 4]}, id="blank lines"),
        pytest.param("a;b\n1,5;2\n-2,25;3\n", {"a": [1.5, -2.25], "b": [2, 3]}, id="decimal comma"),
        pytest.param("a;b\n1.5;2\n", {"a": [1.5], "b": [2]}, id="semicolons with decimal points"),
        pytest.param("a;b, c\n1;2\n3;4\n", {"a": [1, 3], "b, c": [2, 4]}, id="comma in a name"),
        pytest.param("only\n1\n2\n", {"only": [1, 2]}, id="one column"),
        pytest.param("größe,Straße\n1,Österreich\n", {"größe": [1], "Straße": ["Österreich"]}, id="letters of UTF-8"),
        pytest.param("0,1,2\n0,1,2\n0,1,2\n", {"0": [0, 0], "1": [1, 1], "2": [2, 2]}, id="numbered columns"),
        pytest.param("y,1990,1991\n1,1990,1991\n", {"y": [1], "1990": [1990], "1991": [1991]}, id="years as names"),
        pytest.param(
            "400.5,401.0,401.5,402.0,402.5,403.0\n1,2,3,4,5,6\n",
            {"400.5": [1], "401.0": [2], "401.5": [3], "402.0": [4], "402.5": [5], "403.0": [6]},
            id="wavelengths as names",
        ),
    ],
)
def test_ways_to_write_a_table(tmp_path: Path, content: str, expected: dict[str, list[object]]) -> None:
    assert read_table(write(tmp_path, "table.csv", content)).to_dict("list") == expected


def test_missing_values_and_quoted_lines(tmp_path: Path) -> None:
    read = read_table(write(tmp_path, "table.csv", 'a,b\n1,"two\nlines"\n,\n3,NA\n'))
    assert read["a"].isna().tolist() == [False, True, False]
    assert read["b"].isna().tolist() == [False, True, True]
    assert read["b"][0] == "two\nlines"


def test_codes_are_kept_as_written_when_told(tmp_path: Path) -> None:
    path = write(tmp_path, "table.csv", "code,n\n007,1\n012,2\n")
    assert read_table(path)["code"].tolist() == [7, 12]
    assert read_table(path, as_text=["code", "not there"])["code"].tolist() == ["007", "012"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        pytest.param("t.csv", b"", "is empty: it has no content", id="empty file"),
        pytest.param("t.csv", b"\n  \n\n", "is empty: it has neither a header", id="blank file"),
        pytest.param("t.csv", b"\xef\xbb\xbf", "is empty: it has neither a header", id="byte order mark only"),
        pytest.param("t.csv.gz", gzip.compress(b""), "is empty", id="empty when unpacked"),
        pytest.param("t.csv", b"a,b,c\n", "header ('a', 'b', 'c') but no rows", id="header only"),
        pytest.param("t.csv", b"a:b\n1:2\n", "fields seem to be separated by colons", id="colons"),
        pytest.param("t.csv", b"a  b\n10 2\n3  4\n", "fields seem to be separated by spaces", id="spaces"),
        pytest.param("t.csv", b'"a,b"\n"1,2"\n', "every line is quoted as a whole", id="whole lines quoted"),
        pytest.param(
            "t.csv", b"a,b,a\n1,2,3\n", "more than one column named 'a' (columns 1 and 3)", id="duplicated name"
        ),
        pytest.param("t.csv", b"a,b, a \n1,2,3\n", "more than one column named 'a'", id="duplicated but for spaces"),
        pytest.param(
            "t.csv",
            b",a,b\n0,1,2\n",
            "no name for column 1 of 3. Name every column. If it is a pandas index",
            id="index",
        ),
        pytest.param("t.csv", b"a,b,\n1,2,\n", "no name for column 3 of 3", id="names end in a delimiter"),
        pytest.param("t.csv", b"a,,,b\n1,2,3,4\n", "no name for columns 2, 3 of 4", id="unnamed columns"),
        pytest.param("t.csv", b"\x89PNG\r\n\x1a\n\0\0\0", "contains binary data", id="picture"),
        pytest.param("t.csv", bytes(range(1, 32)) * 9, "contains binary data", id="binary without zeros"),
        pytest.param("t.csv", gzip.compress(b"a,b\n1,2\n"), "but a gzip file: rename it to .csv.gz", id="gzip inside"),
        pytest.param(
            "t.csv", b"PK\x03\x04rest", "a zip file (rename it to .csv.zip) or an Excel sheet", id="Excel inside"
        ),
        pytest.param("t.csv", b"PAR1rest", "a Parquet file: rename it to .parquet", id="Parquet inside"),
        pytest.param("t.csv", "a,b\n1,2\n".encode("utf-16"), "but text in UTF-16: convert it to UTF-8", id="UTF-16"),
        pytest.param(
            "t.csv",
            "name,n\nAnn,1\nJosé,2\n".encode("cp1252"),
            "line 3: the byte 0xe9 at offset 16 is not UTF-8. In Windows-1252, the word reads 'José'",
            id="Windows-1252",
        ),
        pytest.param(
            "t.csv",
            b"name,n\r\x81\x8d,1\r",
            "line 2: the byte 0x81 at offset 7 is not UTF-8. It is not valid Win",
            id="unknown",
        ),
        pytest.param("t.csv", b"a,b\n1,2\n3,4,5\n", "line 3 has 3 fields, but the header names 2", id="long row"),
        pytest.param("t.csv", b"a,b\n1,2,3\n4,5,6\n", "line 2 has 3 fields", id="every row long"),
        pytest.param("t.csv", b'a,b\n"x\ny",2\n\n3\n', "line 5 has 1 field, but the header names 2", id="short row"),
        pytest.param("t.csv", b"My table\na,b\n1,2\n3,4\n", "line 2 has 2 fields, but the header", id="title"),
        pytest.param("t.csv", b'a,b\n1,"2\n3,4\n', "an unclosed quote", id="open quote"),
        pytest.param("t.csv", b'a,b\n"1,2\n' + b"3,4\n" * 50_000, "an unclosed quote", id="open quote, long"),
        pytest.param("t.csv", b"5,red\n7,red\n5,blue\n", "has no header: its first li", id="no header"),
        pytest.param("t.csv", b"1.5,-2\n2.5,3\n", "has no header", id="numbers, no header"),
        pytest.param("t.data", b"1,2\n", "has the unsupported file extension '.data'", id="data file"),
        pytest.param("t.data.gz", b"1,2\n", "add one, and rename the file to .csv", id="packed data file"),
        pytest.param("t.xlsx", b"PK", "Save the sheet as CSV", id="Excel"),
        pytest.param("table", b"a,b\n1,2\n", "has no file extension", id="no ending"),
        pytest.param("t.csv.gz", b"a,b\n1,2\n", "cannot be decompressed", id="not gzip"),
        pytest.param("t.csv.gz", gzip.compress(b"a,b\n" * 99)[:-12], "is truncated or damaged", id="gzip cut off"),
        pytest.param("t.csv.bz2", bz2.compress(b"a,b\n" * 99)[:-9], "is truncated or damaged", id="bzip2 cut off"),
        pytest.param("t.csv.xz", lzma.compress(b"a,b\n" * 99)[:-9], "is truncated or damaged", id="xz cut off"),
        pytest.param("t.csv.zst", b"a,b\n1,2\n", "is truncated or damaged", id="not zstandard"),
        pytest.param("t.csv.zip", b"a,b\n1,2\n", "is truncated or damaged", id="not zip"),
        pytest.param("t.parquet", b"PAR1 and nothing else", "is damaged or not a Parquet file", id="Parquet cut off"),
        pytest.param("t.parquet", b"a,b\n1,2\n", "is damaged or not a Parquet file", id="text named Parquet"),
    ],
)
def test_bad_file_is_refused(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    assert says in refusal(write(tmp_path, name, content))


def test_gzip_with_a_damaged_middle(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(bytes(range(256)) * 50))
    packed[len(packed) // 2] ^= 0xFF
    assert "cannot be decompressed" in refusal(write(tmp_path, "t.csv.gz", bytes(packed)))


def test_parquet_without_rows_or_with_a_name_twice(tmp_path: Path) -> None:
    TABLE.iloc[:0].to_parquet(tmp_path / "empty.parquet")
    assert "'size', 'what, else', 'n') but no rows" in refusal(tmp_path / "empty.parquet")
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pa.parquet.write_table(twice, tmp_path / "twice.parquet")
    assert "more than one column named 'a'" in refusal(tmp_path / "twice.parquet")


def test_missing_file_and_its_near_miss(tmp_path: Path) -> None:
    write(tmp_path, "sales.csv", "a,b\n1,2\n")
    assert "There is no file" in refusal(tmp_path / "sale.csv")
    assert "Similar names in the folder: 'sales.csv'" in refusal(tmp_path / "sale.csv")
    assert "Similar names" not in refusal(tmp_path / "no" / "such.csv")


def test_folder_and_the_tables_in_it(tmp_path: Path) -> None:
    assert "is a folder. Pass a file." in refusal(tmp_path)
    write(tmp_path, "sales.csv.gz", b"")
    assert "Tables in this folder: 'sales.csv.gz'" in refusal(tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everything is readable for this user")
def test_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, "table.csv", "a,b\n1,2\n")
    path.chmod(0)
    assert "cannot be read: Permission denied" in refusal(path)


def test_a_row_is_found_by_line_in_a_long_file(tmp_path: Path) -> None:
    lines = ["a,b", *["1,2"] * 5000, "1,2,3", *["1,2"] * 10]
    assert re.search(r"line 5,?002 has 3 fields", refusal(write(tmp_path, "table.csv", "\n".join(lines))))


def test_ten_thousand_columns(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(10_000)]
    line = ",".join(str(i / 7) for i in range(10_000))
    read = read_table(write(tmp_path, "table.csv", "\n".join([",".join(names), line, line])))
    assert read.shape == (2, 10_000)
    assert list(read.columns) == names
    assert read.iloc[1, 9_999] == pytest.approx(9_999 / 7)
