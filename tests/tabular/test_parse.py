"""Arrow and pandas: a text table is the same table whichever of the two parses it, and Arrow parses the usual ones."""

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from awn.errors import TableError
from awn.tabular.read import delimited
from awn.tabular.read.delimited import find_layout
from awn.tabular.read.parse import Layout, parse_by_arrow, parse_by_pandas
from awn.tabular.read.table import read_table

CASES = {
    "whole numbers": "a,b\n1,-2\n3,4\n",
    "decimal numbers": "a,b\n1.5,1e-3\n-.25,4.\n0.1,1E+5\n",
    "numbers that need correct rounding": "a,b\n0.30000000000000004,8.41e21\n9007199254740993,1.7976931348623157e308\n",
    "whole numbers as decimals": "a,b\n1.0,2\n3.0,4\n",
    "plus signs": "a,b\n+1,+1.5\n+2,2\n",
    "leading zeros": "a,b\n007,0\n012,-0\n",
    "large whole numbers": "a,b\n9223372036854775807,9223372036854775808\n1,2\n",
    "larger whole numbers": "a,b\n18446744073709551616,1\n1,2\n",
    "overflow": "a,b\n1e400,1\n2,2\n",
    "infinity": "a,b\ninf,Infinity\n-inf,1.5\n",
    "not a number": "a,b\nNAN,nan\n1,2.5\n",
    "missing numbers": "a,b\n1,\n,2.5\nNA,n/a\n",
    "every word for missing": "a,b\n" + "".join(f"{word},x\n" for word in ("#NA", "NULL", "None", "<NA>", "-nan", "1")),
    "other words for missing": "a,b\n1,?\n?,2\n-,missing\n",
    "a column without values": "a,b\n,1\n,2\n",
    "a row without values": "a,b\n1,2\n,\n3,4\n",
    "booleans": "a,b\nTrue,FALSE\nfalse,true\n",
    "booleans with a missing one": "a,b\nTrue,1\n,2\n",
    "booleans and numbers": "a,b\nTrue,1\n1,False\n",
    "yes and no": "a,b\nyes,f\nno,t\n",
    "dates": "a,b\n2024-01-31,31.01.2024\n2024-02-01,01.02.2024\n",
    "times": "a,b\n12:30:00,2024-01-31 12:30\n,2024-01-31T12:30:00Z\n",
    "text": "a,b\nred,x y\nblue,größe\n",
    "text with missing values": "a,b\nred,\n,x\nNA,NULL\n",
    "numbers, then text": "a,b\n" + "1,1.5\n" * 200 + "x,y\n",
    "text, then numbers": "a,b\nx,y\n" + "1,1.5\n" * 200,
    "whole, then decimal": "a,b\n" + "1,2\n" * 200 + "1.5,2\n",
    "quotes": 'a,b\n"1","x, y"\n"2","say ""x"""\n',
    "quoted missing values": 'a,b\n"","x"\n"NA",""\n',
    "lines in quotes": 'a,b\n1,"x\ny"\n2,"\n"\n',
    "quotes inside a word": 'a,b\n1,5"\n2,"x"y"\n',
    "spaces around numbers": "a,b\n 1 , 2.5\n3 ,  4.5 \n",
    "spaces around words": "a,b\n x, y \nz , w\n",
    "a space as a value": "a,b\n1, \n2,x\n",
    "spaces before quotes": 'a,b\n1, "x, y"\n2, "z"\n',
    "spaces before a quoted line end": 'a,b\n1, "x\ny,z"\n2,w\n',
    "tabs before words": "a,b\n1,\tx\n\t2,y\n",
    "unusual spaces": "a,b\n\v1,\f2\n3,4\n",
    "blank lines": "\n\na,b\n\n1,2\n   \n3,4\n\n",
    "one column": "a\n1\n\n2\n",
    "byte order mark": "\ufeffa,b\n1,2\n",
    "byte order mark before a quote": '\ufeff"a",b\n1,"x"\n',
    "header of several lines": '"a\nb",c\n1,2\n',
    "carriage returns": "a,b\r1,x\r2,y\r",
    "carriage returns and line feeds": 'a,b\r\n1,"x\r\ny"\r\n2,z\r\n',
    "no line end": "a,b\n1,2\n3,x",
    "semicolons": "a;b\n1,5;x\n-2,25;y\n",
    "semicolons and points": "a;b\n1.5;x\n2;y\n",
    "tabs": "a\tb\n1\t\n\tx\n",
    "bars": "a|b\n1|x, y\n2|z\n",
}
# Not read by Arrow, because it would take spaces, blank lines or many columns differently, or more slowly.
PANDAS_ONLY = {"spaces before quotes", "spaces before a quoted line end", "blank lines", "one column"}


def both(content: str, as_text: tuple[str, ...] = ()) -> tuple[pd.DataFrame | None, pd.DataFrame]:
    data = content.encode()
    layout = find_layout(data, "table.csv")
    return parse_by_arrow(data, layout, as_text), parse_by_pandas(data, layout, as_text)


@pytest.mark.parametrize("as_text", [(), ("a", "not there")], ids=["inferred", "as text"])
@pytest.mark.parametrize("name", CASES)
def test_both_parsers_read_the_same_table(name: str, as_text: tuple[str, ...]) -> None:
    arrow, pandas = both(CASES[name], as_text)
    assert (arrow is None) == (name in PANDAS_ONLY)
    if arrow is not None:
        assert_frame_equal(arrow, pandas, check_exact=True)


NUMBERS = ("0", "7", "-1", "+2", "007", "1.5", "2.0", "1e3", "1e", "1e400", "inf", "NaN", "NAN", "9223372036854775808")
WORDS = (
    "",
    ".",
    "-",
    "NA",
    "None",
    "?",
    "true",
    "False",
    "x",
    " x",
    "x ",
    " 3",
    "\t4",
    "\v5",
    "2024-01-31",
    "12:30",
    "ä",
)
QUOTED = ('"', '5"', '"6"', '"a,b"', '"a\nb"', '"a""b"', ' "a,b"', ' "a', '"open', 'x"y"')
CELLS = st.sampled_from([*NUMBERS, *WORDS, *QUOTED])
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=600, deadline=None)
@given(ROWS, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_arrow_reads_odd_cells_as_pandas_does_or_not_at_all(rows: list[list[str]], newline: str, ends: bool) -> None:
    data = newline.join(["a,b", *map(",".join, rows)] + [""] * ends).encode()
    arrow = parse_by_arrow(data, Layout(",", ".", ("a", "b")))
    if arrow is not None:
        assert_frame_equal(arrow, parse_by_pandas(data, Layout(",", ".", ("a", "b"))), check_exact=True)


@pytest.mark.parametrize(
    "content",
    ["a,b\n1\n", "a,b\n1,2,3\n", 'a,b\n1,"2\n3,4\n', 'a,b\n1,"2', 'a,b\n5",1\n2,"3\n', "a,b\n", "a,b\n\n1,2\n3\n"],
)
def test_arrow_leaves_a_malformed_table_to_the_parser_that_explains_it(content: str) -> None:
    assert parse_by_arrow(content.encode(), Layout(",", ".", ("a", "b"))) is None


def test_a_byte_that_is_not_utf8_is_refused_late_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"a,b\n" + b"1,x\n" * 5000 + b"1,\xe9\n")
    with pytest.raises(TableError, match=r"line 5002: the byte 0xe9 at offset 20,006 is not UTF-8"):
        read_table(tmp_path / "table.csv")


def test_a_well_formed_table_is_not_read_through_python_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table.csv").write_text("n,day,word\n" + "1.5,2024-01-31,x\n" * 1000)
    (tmp_path / "ragged.csv").write_text("n,day,word\n" + "1.5,2024-01-31,x\n" * 1000 + "1,2\n")
    seen = []
    records = delimited._records

    def counted(data: bytes, delimiter: str):  # type: ignore[no-untyped-def]
        for record in records(data, delimiter):
            seen.append(record)
            yield record

    monkeypatch.setattr(delimited, "_records", counted)
    assert read_table(tmp_path / "table.csv").shape == (1000, 3)
    assert len(seen) <= 4 * delimited._SAMPLE
    with pytest.raises(TableError, match="line 1002 has 2 fields"):
        read_table(tmp_path / "ragged.csv")
    assert len(seen) > 1000
