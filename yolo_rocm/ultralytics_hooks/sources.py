"""Functions of Ultralytics that are replaced by others which compute the same: known by the words of their source."""

from __future__ import annotations

import hashlib
import inspect
import io
import textwrap
import tokenize
from typing import Any, Final
from weakref import WeakSet

_ASSIGNER: Final = "ultralytics.utils.tal.TaskAlignedAssigner"
# By place. `yolo_rocm.losses` computes what these do; who changes one of them gets it as it is.
LOSSES: Final = {  # the same from 8.4.185 on
    f"{_ASSIGNER}.get_pos_mask": "900455492e06942f",
    f"{_ASSIGNER}.select_candidates_in_gts": "65cdad093e49361a",
    f"{_ASSIGNER}.get_box_metrics": "f54d9720f7160467",
    f"{_ASSIGNER}.pair_overlaps": "b037e6da3af3e890",
    f"{_ASSIGNER}.iou_calculation": "d42f8c85cd8a5615",
    "ultralytics.utils.tal.bbox_iou": "0cb336ee1234d51d",
    "ultralytics.utils.tal.xyxy2xywh": "5741671046a32801",
    "ultralytics.utils.tal.xywh2xyxy": "e8ae37254368a331",
    "ultralytics.utils.loss.BboxLoss.forward": "1ee7d1888ab76c66",
    "ultralytics.utils.loss.DFLoss.__call__": "c6d1c65922fae9fd",
    "ultralytics.utils.loss.bbox_iou": "0cb336ee1234d51d",
    "ultralytics.utils.loss.bbox2dist": "481eac4679720952",
}

wrapped_by_us: Final[WeakSet[Any]] = WeakSet()


def words_of(function: Any) -> str:
    """Return a hash of a function's source, which comments, docstrings, white space and Python's version do not change.

    It is empty where there is no source, or nobody can read it, and for what somebody has wrapped: its source is not
    all that it does. What we have wrapped ourselves, and said so, is unwrapped.
    """
    while hasattr(function, "__wrapped__"):
        if function not in wrapped_by_us:
            return ""
        function = function.__wrapped__
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(textwrap.dedent(inspect.getsource(function))).readline))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return ""
    tokens = [token for token in tokens if token.type not in (tokenize.COMMENT, tokenize.NL)]
    blocks = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    words = [
        tokenize.tok_name[token.type] if token.type in blocks else token.string
        for before, token in zip([None, *tokens], tokens, strict=False)
        if not (token.type == tokenize.STRING and before is not None and before.type == tokenize.INDENT)
    ]
    # Python 3.12 takes f-strings apart; without spaces, their parts are what the whole was.
    return hashlib.sha256("".join("".join(words).split()).encode()).hexdigest()[:16]
