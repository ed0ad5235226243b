"""Written numbers: percentages, currencies, thousands separators, decimal commas and digits of other scripts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
#: How the numbers of a column are written, with or without a currency or percent sign.
NumberFormat = Literal["1,234.5", "1.234,5"]

_CURRENCIES = "$€£¥₹₽₩₺₴₪฿¢"
_SIGNED = re.compile(rf"([+\-−]?)[{_CURRENCIES}]?\s?([+\-−]?)(.*?)\s?([{_CURRENCIES}%٪]?)", re.DOTALL)
_GROUP = "['’\u00a0\u202f]"  # Swiss and French thousands separators, which are never decimal signs
_ENGLISH = re.compile(r"(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)?(?:\.\d*)?")
_CONTINENTAL = re.compile(r"(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)?(?:,\d*)?")


def parse_numbers(texts: Sequence[str], number_format: NumberFormat | None = None) -> Floats:
    """Each word as a number, NaN if it is not one. Without a format, only what Python writes is a number.

    >>> parse_numbers(["1e3", "one", "-.5"])
    array([ 1.e+03, nan, -5.e-01])
    >>> parse_numbers(["$1,200", "12.5%", "٣", "1,5"], "1,234.5")
    array([1200. , 12.5, 3. , nan])
    >>> parse_numbers(["1.200,50 €", "1,5"], "1.234,5")
    array([1200.5, 1.5])
    """
    words = texts if number_format is None else [_rewritten(word, number_format) for word in texts]
    parsed = pd.to_numeric(pd.Series(words, dtype=object), errors="coerce")
    values: Floats = parsed.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def find_number_format(texts: Sequence[str]) -> NumberFormat | None:
    """The format in which all words are numbers and which plain numbers are not, or None.

    >>> find_number_format(["1.200,50", "3,5"]), find_number_format(["$1,200", "$950"])
    ('1.234,5', '1,234.5')
    >>> find_number_format(["1200.5", "3"]), find_number_format(["12%", "0.5"]), find_number_format(["1-2", "3"])
    (None, None, None)

    A percent sign must be in every word or in none, or the column would mix two units. 1,234 is read as 1234.
    """
    units = {_unit(word) for word in texts}
    if not np.isnan(parse_numbers(texts)).any() or len(units - {""}) > 1 or units == {"", "%"}:
        return None
    if not np.isnan(parse_numbers(texts, "1,234.5")).any():
        return "1,234.5"
    commas = any("," in word for word in texts)  # without one, 1.234.567 may be a version or an address
    return "1.234,5" if commas and not np.isnan(parse_numbers(texts, "1.234,5")).any() else None


def parse_alike(texts: Sequence[str]) -> Floats:
    """Numbers of a column without a format: a few may still have thousands separators, but no percent signs.

    >>> parse_alike(["950", "1,200", "5%"])
    array([ 950., 1200., nan])
    """
    values = parse_numbers(texts).copy()
    for place in np.flatnonzero(np.isnan(values)).tolist():
        if _unit(texts[place]) != "%":
            values[place] = parse_numbers([texts[place]], "1,234.5")[0]
    return values


def _unit(word: str) -> str:
    """The currency or percent sign of a word."""
    return "".join(sign for sign in word.replace("٪", "%") if sign in _CURRENCIES + "%")


def _rewritten(word: str, number_format: NumberFormat) -> str:
    """A number as Python writes it, or a word that is none."""
    before, sign, digits, _ = _SIGNED.fullmatch(_western(word)).groups()  # type: ignore[union-attr]
    digits = re.sub(rf"(?<=\d){_GROUP}(?=\d{{3}}(?!\d))", "", digits)
    if number_format == "1,234.5" and _ENGLISH.fullmatch(digits):
        digits = digits.replace(",", "")
    elif number_format == "1.234,5":
        if not _CONTINENTAL.fullmatch(digits):
            return "none"
        digits = digits.replace(".", "").replace(",", ".")
    return (before + sign).replace("−", "-") + digits


def _western(word: str) -> str:
    """Digits, decimal sign and thousands separator of other scripts in their Western form."""
    if word.isascii():
        return word
    plain = (str(unicodedata.decimal(sign, sign)) for sign in word.replace("٫", ".").replace("٬", "'"))
    return "".join(plain)
