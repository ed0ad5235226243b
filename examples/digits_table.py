"""Writes scikit-learn's handwritten digits as a table: 1,797 rows of 64 pixels and the digit. Used by `make run`.

Run: python examples/digits_table.py runs/digits.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

from sklearn.datasets import load_digits


def main() -> None:
    pixels, digit = load_digits(return_X_y=True, as_frame=True)
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels.astype(int).assign(digit=digit).to_csv(path, index=False)
    print(f"Wrote {len(pixels):,} rows to {path}")


if __name__ == "__main__":
    main()
