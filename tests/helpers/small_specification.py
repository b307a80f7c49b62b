"""An experiment that takes seconds, in place of one of the paper's."""

from typing import Any

from adabest.paper.specification import Rule, Specification

SMALL = {
    "dataset": "stripes",
    "clients": 4,
    "validation_clients": 2,
    "participation": 0.5,
    "partition": "iid",
    "epochs": 1,
    "rounds": 4,
    "evaluate_every": 2,
    "average_from": 0.5,
}


def make_specification(**changes: Any) -> Specification:
    parts: dict[str, Any] = {
        "name": "small",
        "title": "Small",
        "seeds": [0, 1],
        "axes": {
            "skew": {"iid": {}, "skewed": {"partition": "dirichlet"}},
            "size": {"few": {}, "all": {"participation": 1.0}},
        },
        "entries": {"fedavg": {"algorithm": "fedavg"}, "adabest": {"algorithm": "adabest"}},
        "settings": SMALL,
        "shares": "small",
        "apart": ["skew"],
        "fixed": [Rule("*/all", ["adabest"], {"beta": 0.5}, {}, 0)],
        "tuned": [Rule("*/few", ["adabest"], {}, {"beta": [0.1, 0.3]}, 2)],
    }
    return Specification(**{**parts, **changes})
