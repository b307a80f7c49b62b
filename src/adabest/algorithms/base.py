"""The one idea that every algorithm is an instance of.

A round of federated learning is the same for all algorithms: the server sends vectors down, each client of the cohort
trains from them, the replies are averaged, the server moves. An ``Algorithm`` says only what differs, as pure functions
on vectors. It never sees a device, a data set, a batch or a loop; the engine owns those.

::

    message          = downlink(server, cloud, context)             what is sent, so its cost is derived
    correction       = client_start(client, message, context)       where a client starts, and its gradient's correction
    client, reply    = client_finish(client, message, w, context)   what it keeps, what it sends back
    update           = server_step(server, cloud, replies, context) the next state, the aggregate and the cloud model

A local step is always, with (s, o, ρ, ρ′) the numbers of the ``Correction``::

    w ← w − η_t (clip(s ∇L(w) + o + ρ w) + (λ + ρ′) w)

so one fused update serves every algorithm. An algorithm that needs more gives more fields of the ``Correction``; each
is absent by default, and what is absent costs nothing::

    u ← ∇L(w + e) − ∇L(anchor)           the anchor's term only if there is one
    d ← clip(s ⊙ u + o + ρ w)
    m ← b m + d                          m = d without momentum
    w ← w − η_t (m + (λ + ρ′) w)

============  ========================================================================================================
field         use
============  ========================================================================================================
``scale``     s: a number, or a diagonal: one number for each of the model's (MimeLite with Adam, FSVRG)
``shift``     e, a vector that is fixed in the round (FedLESAM); one pass, at another point
``radius``    r: sharpness-aware minimisation, e = r ∇L(w) / ‖∇L(w)‖ on the same batch, two passes (FedSAM, FedSpeed).
              The gradient in it is neither corrected nor clipped. With a ``shift``, it is taken at w + shift, and both
              are added
``anchor``    a point whose gradient on the same batch is subtracted, two passes (Mime, SVRG)
``previous``  True: the anchor is the point before the last step, as in SARAH. Before the first step it is ``anchor``,
              or the start if there is none: then the first u is zero, and the first step is one along ``velocity``
``momentum``  b. Where b = 1, d isn't clipped but m is, in the step alone: the sum itself stays whole
``velocity``  m before the first step, zero by default. The last m is ``context.velocity`` in ``client_finish``
============  ========================================================================================================

Loss and metrics of a step are those at w + e. All passes of a step see the same batch, flips, crops and dropout. An
engine compiles a step for the fields that are given, so an algorithm should give the same ones to all of its clients in
a phase: a number that is sometimes 0 as a tensor, or never.

Where the user has clients descend by Adam (``engine.local_step.Adam``), m is what Adam gets in place of a gradient.

How many steps clients make is a setting of the run. An algorithm that draws the number itself, the same for all clients
(Scaffnew), defines ``common_steps``. Several phases of training in a round have batches, flips, crops and dropout of
their own.

Symbols, as in the paper:

=========  ===================  ===============================================================================
θ          ``cloud``            the model that is sent out
θ̄          ``aggregate``        the mean of the models that came back
θ_i        ``model``            what client i sends back after its local steps
g_i        ``cloud - model``    client i's pseudo-gradient: before minus after, here and everywhere
h          ``h``                the server's estimate of the full gradient
h_i        ``client.h``         client i's estimate of its own gradient
t, t'_i    ``round``, ``last_round``  this round, and the last one that client i took part in
η_t        ``eta``              this round's learning rate; ``base_eta`` is the first round's
K_i, n_i   ``steps``, ``samples``     client i's number of local steps and of samples
n̄          ``mean_samples``     mean samples per client
|P|, |S|   ``replies.count``, ``population.size``  clients that replied in this round; clients there are
=========  ===================  ===============================================================================

Vectors have the shape ``[..., P]`` with any leading batch dimensions, and numbers are floats or have the shape
``[..., 1]``, so the formulas need no indexing: an engine may hand over one client or a thousand, and several runs at
once whose learning rates or populations differ. States, messages and replies are NamedTuples of tensors, which an
engine can stack, store and count without knowing their names. An algorithm declares them as its classes ``Server``,
``Client``, ``Message`` and ``Reply`` (see ``forms``), so that whoever receives one can check it.

What other algorithms need is here too, though the paper's six do without it: a reply field may be averaged under
several weights (FedNova), the server sees η_t (SlowMo), ``client_start`` may act on what has become of the client's
last reply (VRL-SGD), and a round may have several exchanges (``phases``; FedDANE collects full gradients first). A part
of the model may stay with its client (``private_part``; FedPer), and a client may have a model of its own beside the
one that it sends back (``personal_model``; Ditto).
"""

import enum
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.forms import Form, forms_of
from adabest.errors import InputError, nearest
from adabest.model_part import Part
from adabest.noise import NoiseKey

Scalar = float | Tensor  # a tensor of shape [..., 1]


SCORED_WEIGHTS = ("one", "samples")
"""The weights that a client's model may have in the scored model."""


class Work(enum.Enum):
    """The clients' work in one phase of a round."""

    TRAIN = "local training; client_finish gets the trained model"
    GRADIENT = "no step at all; client_finish gets the gradient over all local samples at the point of start"


class Correction(NamedTuple):
    """The start of local training, and the correction of its gradient (see the module's docstring).

    Vectors are one client's each, ``[..., P]``, or the same for all of them.

    Attributes:
        start: The point where local training starts.
        scale: s, a number, or a diagonal ``[..., P]``.
        offset: o.
        rho: ρ.
        rho_prime: ρ′.
        shift: e, how far from w the gradient is taken.
        radius: r, the length of e along the gradient.
        anchor: The point whose gradient is subtracted.
        previous: Whether the anchor is the point before the last step.
        momentum: b.
        velocity: m before the first step.
    """

    start: Tensor
    scale: Scalar = 1.0
    offset: Tensor | None = None
    rho: Scalar = 0.0
    rho_prime: Scalar = 0.0
    shift: Tensor | None = None
    radius: Scalar = 0.0
    anchor: Tensor | None = None
    previous: bool = False
    momentum: Scalar = 0.0
    velocity: Tensor | None = None

    @property
    def has_diagonal(self) -> bool:
        """Whether s is a diagonal."""
        size = self.start.shape[-1]
        return size > 1 and isinstance(self.scale, Tensor) and self.scale.ndim > 0 and self.scale.shape[-1] == size

    @property
    def has_radius(self) -> bool:
        """Whether e has a part along the gradient."""
        return isinstance(self.radius, Tensor) or self.radius != 0

    @property
    def has_anchor(self) -> bool:
        """Whether a gradient is subtracted."""
        return self.anchor is not None or self.previous

    @property
    def has_momentum(self) -> bool:
        """Whether m goes from step to step."""
        return isinstance(self.momentum, Tensor) or self.momentum != 0

    @property
    def is_affine(self) -> bool:
        """Whether the step needs one gradient, at w, and nothing of the step before."""
        return not (self.has_radius or self.has_anchor or self.has_momentum or self.shift is not None)


@dataclass(frozen=True)
class ClientContext:
    """The facts that a client knows in a round beside its state and the message. The population isn't among them.

    Attributes:
        round: t, from 1.
        phase: Which exchange of the round this is, from 0.
        eta: η_t.
        base_eta: η_1, before any decay.
        steps: K_i, ``[..., 1]``.
        samples: n_i, ``[..., 1]``.
        noise: The key of ``normal_like`` and ``uniform_like``.
        velocity: The last m in ``client_finish``, where the correction has a momentum; None elsewhere.
        private: Which of a model's numbers are private, bool ``[P]``; None for an algorithm without a private part.
    """

    round: int
    phase: int
    eta: Scalar
    base_eta: Scalar
    steps: Tensor
    samples: Tensor
    noise: NoiseKey = field(default_factory=NoiseKey, compare=False, repr=False)
    velocity: Tensor | None = None
    private: Tensor | None = field(default=None, compare=False, repr=False)

    def normal_like(self, x: Tensor, draw: int | None = None) -> Tensor:
        """Numbers of the standard normal distribution, in the shape and type of a tensor.

        They follow from the run's seed, the round, the client, the phase, the algorithm's function, and how many draws
        this call of it has made before: the same on every engine and device, and no two draws alike.

        Args:
            x: The tensor. Where an engine computes several clients at once, the noise has a first dimension for them,
                even if ``x`` is a vector that is the same for all.
            draw: A number, for noise that another function of the same phase needs, too: the same number gives the same
                noise in all of them, in every call.
        """
        return self.noise.normal(x, (self.round, self.phase), draw)

    def uniform_like(self, x: Tensor, draw: int | None = None) -> Tensor:
        """Numbers that are evenly spread over [0, 1), in the shape and type of a tensor; see ``normal_like``."""
        return self.noise.uniform(x, (self.round, self.phase), draw)


@dataclass(frozen=True)
class Population:
    """The training clients present in a round.

    Attributes:
        size: |S^t|.
        mean_samples: n̄, their mean number of samples.
    """

    size: Scalar
    mean_samples: Scalar


@dataclass(frozen=True)
class ServerContext:
    """The facts that the server knows in a round beside its state and the replies.

    Attributes:
        round: t, from 1.
        phase: Which exchange of the round this is, from 0.
        eta: η_t.
        base_eta: η_1, before any decay.
        known_population: The population, for algorithms that declare ``needs_population``; None for all others.
        noise: The key of ``normal_like`` and ``uniform_like``. Runs that differ in nothing else may be stacked.
    """

    round: int
    phase: int
    eta: Scalar
    base_eta: Scalar
    known_population: Population | None = None
    noise: NoiseKey = field(default_factory=NoiseKey, compare=False, repr=False)

    def normal_like(self, x: Tensor, draw: int | None = None) -> Tensor:
        """Numbers of the standard normal distribution, in the shape and type of a tensor.

        They follow from the run's seed, the round, the phase, the algorithm's function, and how many draws this call of
        it has made before: the same on every engine and device, and no two draws alike.

        Args:
            x: The tensor.
            draw: A number, for noise that another function of the same phase needs, too: the same number gives the same
                noise in all of them, in every call.
        """
        return self.noise.normal(x, (self.round, self.phase), draw)

    def uniform_like(self, x: Tensor, draw: int | None = None) -> Tensor:
        """Numbers that are evenly spread over [0, 1), in the shape and type of a tensor; see ``normal_like``."""
        return self.noise.uniform(x, (self.round, self.phase), draw)

    @property
    def population(self) -> Population:
        """|S^t| and n̄, for algorithms that declare ``needs_population``."""
        if self.known_population is None:
            raise UndeclaredPopulationError(
                "this algorithm reads the population without declaring it: set `needs_population = True` in its class"
            )
        return self.known_population


class UndeclaredPopulationError(InputError):
    """An algorithm read |S^t| or n̄ without declaring ``needs_population``."""


class UndeclaredMeanError(InputError):
    """An algorithm asked for a mean that isn't in ``Algorithm.means``, or of a field that its replies lack."""


class Replies(ABC):
    """The accepted replies of a round, averaged by the engine.

    Attributes:
        count: |P|, how many there are.
    """

    count: int

    @abstractmethod
    def mean(self, field: str, weight: str = "one") -> Tensor:
        """The mean of a reply field, Σ v_i x_i / Σ v_i.

        Args:
            field: The field x to average.
            weight: ``one``, or a scalar field v of the same reply. The pair must stand in ``Algorithm.means``.

        Raises:
            UndeclaredMeanError: If it doesn't, or the replies of this phase lack the field or the weight.
        """

    def total(self, field: str) -> Tensor:
        """The sum of a field of counts, in float64. Its mean under ``one`` must be declared.

        An engine that has the replies in memory should sum them in float64, too: float32, in which replies may be sent,
        doesn't hold every whole number above 2²⁴.
        """
        # Rounded: the mean is a rounded float, and without it the total might not be a whole number.
        return (self.count * self.mean(field).to(torch.float64)).round()


class Update(NamedTuple):
    """The result of a server step.

    Attributes:
        server: The next state.
        aggregate: θ̄.
        cloud: θ, at server rate 1; the engine applies any other rate.
        h: The server's estimate of the full gradient, for the metrics; None if the algorithm has none.
    """

    server: Any
    aggregate: Tensor
    cloud: Tensor
    h: Tensor | None = None


class Nothing(NamedTuple):
    """The empty state, of a server or a client that keeps nothing."""


class Algorithm(ABC):
    """A federated algorithm: hyper-parameters and pure functions on vectors. Subclasses are frozen dataclasses.

    A subclass declares ``Message`` and ``Reply``, and ``Server`` and ``Client`` where they keep something, as
    NamedTuples whose fields have the types of ``forms``.

    Attributes:
        needs_population: Whether the server must be told |S^t| and n̄.
        scored_weight: The weight of each client's model in the scored model, ``one`` or ``samples``.
        means: For each reply field, the weights under which the engine averages it. Where a round has several
            exchanges, their replies may have different fields.
        phases: The clients' work in each exchange of a round.
    """

    needs_population: ClassVar[bool] = False
    scored_weight: ClassVar[str] = "one"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.TRAIN,)

    def idle(self) -> Mapping[str, str]:
        """The hyper-parameters that change nothing with these values of the others, and why: a warning to users."""
        return {}

    def private_part(self) -> Part | None:
        """The part of the model that never leaves a client; None if all of it is shared.

        ``context.private`` tells the algorithm's client functions where it lies. Whatever they do, the engine keeps
        it out of what is sent: in its place, a reply's models have θ's numbers and its other vectors zeros, the cloud
        model and θ̄ stay what they were at first, and no bytes are counted for it.
        """
        return None

    def server_type(self) -> type[Any]:
        """The NamedTuple that the server keeps."""
        return _declared(self, "Server", Nothing)

    def client_type(self) -> type[Any]:
        """The NamedTuple that a client keeps."""
        return _declared(self, "Client", Nothing)

    def message_type(self, phase: int) -> type[Any]:
        """The NamedTuple that is sent to clients in a phase."""
        return _declared(self, "Message")

    def reply_type(self, phase: int) -> type[Any]:
        """The NamedTuple that a client sends back in a phase."""
        return _declared(self, "Reply")

    @property
    def stackable(self) -> bool:
        """Whether one call of ``server_step`` may serve several runs, whose vectors are stacked along a new dimension.

        True only if every number of a result follows from the numbers at its own place: sums and norms over a vector
        may end with other last bits where there are several (``sums.dot`` doesn't). False unless an algorithm says
        otherwise.
        """
        return False

    def server_init(self, cloud: Tensor) -> Any:
        """The server's state before the first round, given the initial model."""
        return Nothing()

    def client_init(self, cloud: Tensor) -> Any:
        """A client's state before it first takes part, given the initial model."""
        return Nothing()

    @abstractmethod
    def downlink(self, server: Any, cloud: Tensor, context: ServerContext) -> Any:
        """The named vectors and numbers that every client of the cohort receives; ``cloud``, θ, is one of them."""

    @abstractmethod
    def client_start(self, client: Any, message: Any, context: ClientContext) -> Correction:
        """The point from which client i trains, and the correction of its gradient."""

    @abstractmethod
    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        """The state that client i keeps, and the named vectors and numbers it sends back."""

    @abstractmethod
    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        """The server's next state, the aggregate and the cloud model, from the averaged replies."""

    def client_model(self, message: Any, reply: Any, context: ServerContext) -> Tensor | None:
        """θ_i, the model that client i has trained, as it follows from what was sent and what came back.

        None if it can't be told from them, or if the phase isn't the one whose models count: then the run has no scored
        model. By default the reply's field that is declared as a ``Model``, or called ``model``.
        """
        forms = forms_of(type(reply))
        name = next((name for name, form in forms.items() if form is Form.MODEL), "model")
        return getattr(reply, name, None)

    def personal_model(self, client: Any, message: Any, context: ClientContext) -> Tensor | None:
        """The model that client i uses for itself; None if that is the one it trained last.

        Args:
            client: What it keeps.
            message: What it would be sent now, as in the first phase of a round.
            context: Its context in the round to come.
        """
        return None

    def common_steps(self, context: ServerContext) -> int | None:
        """K, the number of local steps that every client makes in this phase; None for each client's own number.

        It may be drawn, as a coin's tosses until the first success::

            steps = 1
            while float(context.uniform_like(torch.zeros(1, dtype=torch.float64))) >= self.probability:
                steps += 1
        """
        return None

    def server_numbers(self, server: Any) -> Mapping[str, Tensor]:
        """Numbers of the server's state that become metrics, by name."""
        return {}

    def client_estimate(self, client: Any, message: Any, context: ClientContext) -> Tensor | None:
        """h_i at the scale in which it acts on the gradient, for the metrics; None if the algorithm has none."""
        return None


def _declared(algorithm: Algorithm, name: str, default: type[Any] | None = None) -> type[Any]:
    found: type[Any] | None = getattr(type(algorithm), name, default)
    if found is None:
        raise InputError(
            f"algorithm {type(algorithm).__name__} declares no {name}: its class should hold a NamedTuple of that "
            f"name, or say what it is, as in `{name} = FedAvg.{name}`"
        )
    return found


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuses a hyper-parameter that isn't one of its values.

    Raises:
        InputError: With the values that would be right.
    """
    if value not in choices:
        raise InputError(f"{name} = {value!r} isn't one of its values; {nearest(str(value), map(str, choices))}")


def check_count(name: str, value: int) -> None:
    """Refuses a hyper-parameter that isn't a whole number from 1.

    Raises:
        InputError: With the range that would be right.
    """
    if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        raise InputError(f"{name} = {value!r} is out of range: it must be a finite whole number, at least 1")


def check_range(name: str, value: float, low: float = 0.0, high: float = math.inf) -> None:
    """Refuses a hyper-parameter that isn't a finite number in [low, high].

    Raises:
        InputError: With the range that would be right.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and low <= value <= high):
        right = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise InputError(f"{name} = {value!r} is out of range: it must be a finite number {right}")
