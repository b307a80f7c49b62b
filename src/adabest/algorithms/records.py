"""Records of the built-in algorithms: the family, the term that is added to a local step, and the paper."""

import enum
from dataclasses import dataclass


class Family(enum.Enum):
    """The families, each in a sentence."""

    AVERAGING = "averaging: clients take plain steps, and the server averages"
    SERVER = "server optimiser: θ − θ̄ is taken for a gradient, and an optimiser on the server makes the step"
    PROXIMAL = "proximal: a spring holds clients near θ"
    VARIATES = "control variates: the client's gradient is replaced by everyone's"
    DUALS = "dual variables: an augmented Lagrangian per client, as in ADMM"
    MOMENTUM = "shared momentum: every local step goes where everyone has gone"
    FLAT = "flat minima: the gradient is taken a little uphill, at w + e, so that narrow valleys repel"
    AHEAD = "ahead: clients start beyond the aggregate, where the last rounds point"
    PERSONAL = "personal: clients have models, or parts of models, of their own"

    @property
    def words(self) -> str:
        """The family's name."""
        return self.value.partition(":")[0]


@dataclass(frozen=True)
class Record:
    """What isn't in an algorithm's code.

    Attributes:
        family: Its family.
        term: The term that is added to ∇L(w) in a local step; empty if there is none.
        paper: Authors and year.
        all_clients: Whether its paper asks all clients in every round.
        two_gradients: Whether each local step takes two gradients.
    """

    family: Family
    term: str
    paper: str
    all_clients: bool = False
    two_gradients: bool = False


_DANE = "h − ∇L_i(θ) + μ(w − θ)"

RECORDS = {
    "fedavg": Record(Family.AVERAGING, "", "McMahan et al., 2017"),
    "fedprox": Record(Family.PROXIMAL, "μ(w − θ)", "Li et al., 2020"),
    "scaffold": Record(Family.VARIATES, "h/w_i − h_i", "Karimireddy et al., 2020"),
    "scaffold-m": Record(Family.VARIATES, "h/w_i − h_i", "Varno et al., 2022"),
    "scaffold-gradient": Record(Family.VARIATES, "h/w_i − h_i", "Karimireddy et al., 2020"),
    "feddyn": Record(Family.DUALS, "−μ_i h_i + μ_i(w − θ)", "Acar et al., 2021"),
    "adabest": Record(Family.AHEAD, "−μ(n̄_t/n_i) h_i", "Varno et al., 2022"),
    "fedavgm": Record(Family.SERVER, "", "Hsu et al., 2019"),
    "slowmo": Record(Family.SERVER, "", "Wang et al., 2020"),
    "fedadam": Record(Family.SERVER, "", "Reddi et al., 2021"),
    "fedyogi": Record(Family.SERVER, "", "Reddi et al., 2021"),
    "fedadagrad": Record(Family.SERVER, "", "Reddi et al., 2021"),
    "fedexp": Record(Family.SERVER, "", "Jhunjhunwala et al., 2023"),
    "fednova": Record(Family.AVERAGING, "", "Wang et al., 2020"),
    "mifa": Record(Family.AVERAGING, "", "Gu et al., 2021"),
    "vrl-sgd": Record(Family.VARIATES, "−h_i", "Liang et al., 2019", all_clients=True),
    "dane": Record(Family.VARIATES, f"share · {_DANE}", "Shamir et al., 2014", all_clients=True),
    "aide": Record(Family.VARIATES, f"{_DANE} + τ(w − y)", "Reddi et al., 2016", all_clients=True),
    "feddane": Record(Family.VARIATES, _DANE, "Li et al., 2019"),
    "feddc": Record(Family.VARIATES, "h − h_i + α(w + d_i − θ)", "Gao et al., 2022"),
    "fedpd": Record(Family.DUALS, "λ_i + ρ(w − θ)", "Zhang et al., 2020", all_clients=True),
    "fedsplit": Record(Family.DUALS, "(w − 2θ + z_i)/s", "Pathak and Wainwright, 2020", all_clients=True),
    "fedcm": Record(Family.MOMENTUM, "(1 − α)(h − ∇L(w))", "Xu et al., 2021"),
    "mimelite": Record(Family.MOMENTUM, "β(h − ∇L(w))", "Karimireddy et al., 2021"),
    "fedacg": Record(Family.AHEAD, "β(w − θ)", "Kim et al., 2024"),
    "local-momentum": Record(Family.MOMENTUM, "β m", "Yu et al., 2019", all_clients=True),
    "scaffnew": Record(Family.VARIATES, "−h_i", "Mishchenko et al., 2022", all_clients=True),
    "fsvrg": Record(Family.VARIATES, "h − ∇L(θ)", "Konečný et al., 2016", two_gradients=True),
    "bvr-l-sgd": Record(Family.VARIATES, "m − ∇L(w′)", "Murata and Suzuki, 2021", all_clients=True, two_gradients=True),
    "mime": Record(
        Family.MOMENTUM, "(1 − β)(c − ∇L(θ)) + β(h − ∇L(w))", "Karimireddy et al., 2021", two_gradients=True
    ),
    "mimelite-adam": Record(Family.MOMENTUM, "S(∇L(w) + β₁h/(1 − β₁)) − ∇L(w)", "Karimireddy et al., 2021"),
    "fedsam": Record(Family.FLAT, "∇L(w + e) − ∇L(w)", "Qu et al., 2022", two_gradients=True),
    "mofedsam": Record(Family.FLAT, "α∇L(w + e) + (1 − α)h − ∇L(w)", "Qu et al., 2022", two_gradients=True),
    "fedspeed": Record(Family.FLAT, "∇L(w + e) − ∇L(w) − μh_i + μ(w − θ)", "Sun et al., 2023", two_gradients=True),
    "fedlesam": Record(Family.FLAT, "∇L(w + e) − ∇L(w)", "Fan et al., 2024"),
    "fedper": Record(Family.PERSONAL, "", "Arivazhagan et al., 2019"),
    "fedbn": Record(Family.PERSONAL, "", "Li et al., 2021"),
    "ditto": Record(Family.PERSONAL, "λ(v_i − θ)", "Li et al., 2021"),
}
