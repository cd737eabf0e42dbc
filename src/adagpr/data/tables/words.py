r"""Texts as bags of words: words are runs of letters, digits and underscores, in lower case.

The entry of node :math:`i` and word :math:`w` is

.. math:: \mathrm{tfidf}_{iw} = \frac{n_{iw}\, g_w}{\sqrt{\sum_v (n_{iv}\, g_v)^2}}, \qquad
          g_w = 1 + \ln \frac{1 + N}{1 + d_w},

with :math:`n_{iw}` how often the word is in the node's text and :math:`d_w` the number of the :math:`N` texts it
is in, as in scikit-learn. Nothing here loops over nodes in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from adagpr.data.tables.values import flags, places_in

# Rows are taken apart in groups, so that memory for the words of long texts stays small.
_ROWS_AT_ONCE = 20_000
_BETWEEN_WORDS = r"[^\pL\pN_]+"
_MIN_TEXTS = 2


@dataclass(frozen=True, eq=False)
class Tokens:
    """The distinct words of a column of texts, and an entry per row and word with its position in ``words``."""

    num_rows: int
    rows: np.ndarray
    codes: np.ndarray
    counts: np.ndarray
    words: list[str]


def tokenise(texts: Any) -> Tokens:
    """Takes the texts of a column apart; a missing text has no words."""
    parts: list[list[np.ndarray]] = []
    words: list[Any] = []
    num_words = 0
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        rows, codes, own = _split(texts.slice(start, _ROWS_AT_ONCE))
        # Row and word as one number, so that sorting brings together what is to be counted.
        width = max(len(own), 1)
        keys, counts = np.unique(rows * width + codes, return_counts=True)
        parts.append([part.astype(np.int32) for part in (keys // width + start, keys % width + num_words, counts)])
        words.append(own)
        num_words += len(own)
    # Each group numbered its words for itself; here they get one number for all.
    encoded = pa.concat_arrays(words).dictionary_encode()
    rows, codes, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Tokens(len(texts), rows, encoded.indices.to_numpy()[codes], counts, encoded.dictionary.to_pylist())


def _split(texts: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Row and code of every word of a group of texts, and the words that the codes mean."""
    # White space parts the texts; what is dear, finding all else that is no letter, is done for each piece once.
    lists = pc.ascii_split_whitespace(pc.utf8_lower(pc.fill_null(texts, "")))
    pieces = lists.flatten().dictionary_encode()
    inner = pc.split_pattern_regex(pieces.dictionary, _BETWEEN_WORDS)
    words = inner.flatten().dictionary_encode()
    # For each piece the codes of its words, most often of one.
    coded = pa.ListArray.from_arrays(inner.offsets, words.indices).take(pieces.indices)
    rows = pc.list_parent_indices(lists).to_numpy()[pc.list_parent_indices(coded).to_numpy()]
    codes = coded.flatten().to_numpy().astype(np.int64)
    kept = flags(pc.not_equal(words.dictionary, ""))[codes]
    return rows[kept], codes[kept], words.dictionary


def choose_words(tokens: Tokens, limit: int) -> tuple[list[str], list[float], int]:
    """The vocabulary in alphabetical order, the weight of each word, and how many words were left out for the limit.

    A word counts if it is in at least two texts. If there are more than ``limit``, those that are in most texts are
    kept; of equally frequent ones, those first in the alphabet. So the order of the rows changes nothing.
    """
    num_texts = np.bincount(tokens.codes, minlength=len(tokens.words))
    count_of = {tokens.words[code]: int(num_texts[code]) for code in np.flatnonzero(num_texts >= _MIN_TEXTS)}
    most_common = sorted(count_of, key=lambda word: (-count_of[word], word))
    kept = sorted(most_common[:limit])
    idf = [1.0 + float(np.log((1 + tokens.num_rows) / (1 + count_of[word]))) for word in kept]
    return kept, idf, len(count_of) - len(kept)


def tfidf(tokens: Tokens, words: Sequence[str], idf: Sequence[float]) -> sp.csr_array:
    """One row per text and one column per word of the vocabulary; a text without any such word is a row of zeros."""
    columns = places_in(pa.array(words, pa.string()), pa.array(tokens.words, pa.string()))[tokens.codes]
    kept = columns >= 0
    values = tokens.counts[kept] * np.asarray(idf, dtype=np.float64)[columns[kept]]
    matrix = sp.csr_array((values, (tokens.rows[kept], columns[kept])), shape=(tokens.num_rows, len(words)))
    # Summed in the order of the columns, so that a text gives the same bits whatever texts are around it.
    matrix.sort_indices()
    rows = np.repeat(np.arange(tokens.num_rows), np.diff(matrix.indptr))
    lengths = np.sqrt(np.bincount(rows, weights=matrix.data**2, minlength=tokens.num_rows))
    matrix.data /= lengths[rows]
    return matrix.astype(np.float32)
