"""Calls of an algorithm's functions, with a check of the form of what each returns.

PyTorch stretches a wrong shape where it can: an aggregate of one number would become a model of equal numbers, and a
vector in float64 would change the type of all that follows. So whatever an algorithm returns is held against what it
declares, and against the model it was given, on every engine and in every round. Only shapes and types are looked at,
which waits for no device.

Replies are the exception: one that isn't of its form is left out by the gate, since in a federation it may be a single
client's fault. If in the first round all are wrong, it is the algorithm's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import (
    SCORED_WEIGHTS,
    Algorithm,
    ClientContext,
    Correction,
    Replies,
    ServerContext,
    UndeclaredMeanError,
    Update,
)
from adabest.algorithms.forms import Form, fault_of_field, find_fault, forms_of
from adabest.engine.private_part import without_private
from adabest.errors import InputError
from adabest.global_generators import GlobalGenerators


def refuse_wrong_declarations(algorithm: Algorithm) -> None:
    """Refuses weights that can't weigh anything.

    Raises:
        InputError: With the declaration, and what would be right.
    """
    if algorithm.scored_weight not in SCORED_WEIGHTS:
        right = " or ".join(map(repr, SCORED_WEIGHTS))
        raise _error(algorithm, f"declares scored_weight = {algorithm.scored_weight!r}; it should be {right}")
    for phase in range(len(algorithm.phases)):
        forms = forms_of(algorithm.reply_type(phase))
        vectors = {name for name, form in forms.items() if form is not None and form.is_vector}
        for field in forms:
            for weight in vectors.intersection(algorithm.means.get(field, ())):
                raise _error(
                    algorithm,
                    f"declares a mean of {field} under {weight}, which is a vector; a weight should be one number of "
                    "each reply, or one",
                )


def initial_server(algorithm: Algorithm, cloud: Tensor) -> Any:
    """The server's state before the first round."""
    state = _call(algorithm, "server_init", cloud)
    _check_tuple(algorithm, "server_init", algorithm.server_type(), state, cloud)
    return state


def initial_client(algorithm: Algorithm, cloud: Tensor) -> Any:
    """The state of a client that never took part."""
    state = _call(algorithm, "client_init", cloud)
    _check_tuple(algorithm, "client_init", algorithm.client_type(), state, cloud)
    return state


def message(algorithm: Algorithm, server: Any, cloud: Tensor, context: ServerContext) -> Any:
    """The message of a phase."""
    kind = algorithm.message_type(context.phase)
    if "cloud" not in forms_of(kind):
        fields = ", ".join(forms_of(kind)) or "nothing"
        raise _error(algorithm, f"declares a {kind.__name__} of {fields}; one of its fields should be cloud: Model")
    sent = _call(algorithm, "downlink", server, cloud, context)
    _check_tuple(algorithm, "downlink", kind, sent, cloud)
    return sent


def correction(
    algorithm: Algorithm, states: Any, sent: Any, context: ClientContext, *, leading: tuple[int, ...] = ()
) -> Correction:
    """The start of one client's training, or of several clients', and the correction of their gradients.

    Args:
        algorithm: The algorithm.
        states: What they keep.
        sent: The message.
        context: Their context.
        leading: ``(clients,)`` where several are computed at once. What is the same for all may lack it.
    """
    found = _call(algorithm, "client_start", states, sent, context)
    if not isinstance(found, Correction):
        raise _wrong_kind(algorithm, "client_start", found, "a Correction")
    fault = _correction_fault(found, sent.cloud, leading)
    if fault is not None:
        raise _error(algorithm, f"client_start returned a Correction that can't be used: {fault}")
    return found


def finish(
    algorithm: Algorithm,
    states: Any,
    sent: Any,
    model: Tensor,
    context: ClientContext,
    *,
    leading: tuple[int, ...] = (),
) -> tuple[Any, Any]:
    """What one client keeps and replies, or several, without what is private; the form of replies isn't checked here.

    Args:
        algorithm: The algorithm.
        states: What they kept.
        sent: The message.
        model: The result of their work.
        context: Their context.
        leading: ``(clients,)`` where several are computed at once. What is the same for all may lack it.
    """
    found = _call(algorithm, "client_finish", states, sent, model, context)
    if not (isinstance(found, tuple) and len(found) == 2 and not hasattr(found, "_fields")):
        raise _wrong_kind(algorithm, "client_finish", found, "two things: what the client keeps, and its reply")
    kept, reply = found
    _check_tuple(algorithm, "client_finish", algorithm.client_type(), kept, sent.cloud, leading=leading)
    return kept, reply if context.private is None else without_private(reply, sent.cloud, context.private, leading)


def server_step(algorithm: Algorithm, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
    """The result of a server step, of one run or of several stacked ones; see ``check_update`` for its form."""
    try:
        found = _call(algorithm, "server_step", server, cloud, replies, context)
    except UndeclaredMeanError as error:
        raise _error(algorithm, f"in server_step, {error}") from None
    if not isinstance(found, Update):
        raise _wrong_kind(algorithm, "server_step", found, "an Update")
    return found


def check_update(algorithm: Algorithm, update: Update, cloud: Tensor) -> None:
    """Refuses the result of a run's server step that doesn't have the declared form.

    Args:
        algorithm: The algorithm.
        update: The result.
        cloud: The cloud model before.

    Raises:
        InputError: With what came, and what would be right.
    """
    for name, form in {"aggregate": Form.MODEL, "cloud": Form.MODEL, "h": Form.VECTOR}.items():
        value = getattr(update, name)
        fault = None if name == "h" and value is None else fault_of_field(form, value, cloud)
        if fault is not None:
            raise _error(algorithm, f"server_step returned an Update that can't be used: its field {name} {fault}")
    _check_tuple(algorithm, "server_step", algorithm.server_type(), update.server, cloud)


def client_models(
    algorithm: Algorithm, sent: Any, replies: Any, context: ServerContext, clients: Sequence[int]
) -> Tensor | None:
    """The models of the clients that replied, ``[clients, P]``; None if they can't be told."""
    # By client, since each rank works out the models of its own clients.
    own = replace(context, noise=replace(context.noise, client=tuple(clients)))
    models: Tensor | None = _call(algorithm, "client_model", sent, replies, own)
    if models is not None:
        fault = fault_of_field(Form.MODEL, models, sent.cloud, (len(replies[0]),))
        if fault is not None:
            raise _error(algorithm, f"client_model returned what can't be a model: it {fault}")
    return models


def client_estimates(
    algorithm: Algorithm, states: Any, sent: Any, context: ClientContext, *, leading: tuple[int, ...] = ()
) -> Tensor | None:
    """h_i of one client, or of several; None if the algorithm has none."""
    found: Tensor | None = _call(algorithm, "client_estimate", states, sent, context)
    if found is not None:
        fault = fault_of_field(Form.VECTOR, found, sent.cloud, leading)
        if fault is not None:
            raise _error(algorithm, f"client_estimate returned what can't be an h_i: it {fault}")
    return found


def personal_model(algorithm: Algorithm, state: Any, sent: Any, context: ClientContext) -> Tensor | None:
    """The model that one client uses for itself; None if the algorithm has no other than the one trained last."""
    found: Tensor | None = _call(algorithm, "personal_model", state, sent, context)
    if found is not None:
        fault = fault_of_field(Form.MODEL, found, sent.cloud)
        if fault is not None:
            raise _error(algorithm, f"personal_model returned what can't be a model: it {fault}")
    return found


def common_steps(algorithm: Algorithm, context: ServerContext) -> int | None:
    """The number of local steps of every client in a phase, if the algorithm says it."""
    # Without the population, which ranks aren't told.
    found: int | None = _call(algorithm, "common_steps", replace(context, known_population=None))
    if found is not None and not (isinstance(found, int) and not isinstance(found, bool) and found >= 1):
        raise _error(algorithm, f"common_steps returned {found!r}; it should be None or a whole number from 1")
    return found


def server_numbers(algorithm: Algorithm, server: Any) -> Mapping[str, Tensor]:
    """Numbers of the server's state that become metrics."""
    found = _call(algorithm, "server_numbers", server)
    if not isinstance(found, Mapping):
        raise _wrong_kind(algorithm, "server_numbers", found, "a mapping of names and numbers")
    for name, value in found.items():
        if torch.as_tensor(value).numel() != 1:
            shape = list(torch.as_tensor(value).shape)
            raise _error(algorithm, f"server_numbers returned {name} of the shape {shape}; it should be one number")
    return found


def refuse_wrong_replies(algorithm: Algorithm, faults: Mapping[int, str], clients: int) -> None:
    """Refuses an algorithm all of whose replies in the first round are of the wrong form.

    Args:
        algorithm: The algorithm.
        faults: What is wrong with the names, shapes or types of replies, by client.
        clients: How many replied.

    Raises:
        InputError: If all are wrong.
    """
    if faults and len(faults) == clients:
        fault = next(iter(faults.values()))
        raise _error(algorithm, f"client_finish returned a reply that can't be used: {fault}")


def _call(algorithm: Algorithm, method: str, *given: Any) -> Any:
    """Calls a function of an algorithm, with noise of its own, and refuses one that draws from a global generator.

    torch's generators are watched always. A look at NumPy's and Python's takes longer than a small function does, so
    theirs are watched in some rounds, of which some coincide with any rhythm in which an algorithm may draw.

    Raises:
        InputError: If one is drawn from.
    """
    function = getattr(algorithm, method)
    context, number = given[-1], 1
    if isinstance(context, ServerContext | ClientContext):
        number = context.round
        before = given[:-1]

        def call() -> Any:
            return function(*before, replace(context, noise=context.noise.in_function(method)))
    else:

        def call() -> Any:
            return function(*given)

    is_power_of_two = not number & (number - 1)
    generators = GlobalGenerators(all_libraries=is_power_of_two or number % 13 == 0)
    found = call()
    if generators.used_since():
        # Another thread, as a tracker's, may have drawn meanwhile. Functions are pure: a second call tells. It begins
        # with the same states, or a function that sets a seed by itself would leave the generator as it finds it.
        generators.restore()
        call()
        used = generators.used_since()
        if used:
            raise _error(
                algorithm,
                f"{method} draws random numbers from {used[0]}, so runs could not be repeated. Use "
                "context.normal_like(x) or context.uniform_like(x), which are keyed by seed, round, client and phase",
            )
    return found


def _check_tuple(
    algorithm: Algorithm, method: str, kind: type[Any], given: Any, like: Tensor, *, leading: tuple[int, ...] = ()
) -> None:
    """Refuses a state or a message that doesn't have the declared form; see ``correction`` for ``leading``."""
    fault = find_fault(kind, expanded(given, leading), like, leading=leading)
    if fault is not None:
        raise _error(algorithm, f"{method} returned a {kind.__name__} that can't be used: {fault}")


def expanded(given: Any, leading: tuple[int, ...]) -> Any:
    """A state or reply of several clients; what has no dimension for the clients is the same for all of them."""
    if not leading or not hasattr(given, "_fields"):
        return given
    return type(given)(*(f.expand(*leading, *f.shape) if isinstance(f, Tensor) and f.ndim <= 1 else f for f in given))


def _correction_fault(found: Correction, like: Tensor, leading: tuple[int, ...]) -> str | None:
    for name in ("start", "offset", "shift", "anchor", "velocity", "scale"):
        value = getattr(found, name)
        if (name != "start" and value is None) or (name == "scale" and not _is_diagonal(value)):
            continue
        own = leading if isinstance(value, Tensor) and value.ndim > 1 else ()
        fault = fault_of_field(Form.VECTOR, value, like, own)
        if fault is not None:
            return f"its {name} {fault}"
    if not isinstance(found.previous, bool):
        return f"its previous is {found.previous!r}; it should be True or False"
    if found.velocity is not None and not found.has_momentum:
        return "it has a velocity without a momentum; give momentum, the factor of the velocity"
    for name in ("scale", "rho", "rho_prime", "radius", "momentum"):
        if name == "scale" and _is_diagonal(found.scale):
            continue
        value = getattr(found, name)
        if isinstance(value, Tensor) and value.ndim > 0:
            fault = fault_of_field(Form.NUMBER, value, like, leading if value.ndim > 1 else ())
            if fault is not None:
                return f"its {name} {fault}"
        elif not isinstance(value, Tensor | int | float):
            return f"its {name} is a {type(value).__name__}; it should be a number"
    return None


def _is_diagonal(scale: Any) -> bool:
    """Whether a scale is meant as a diagonal: all vectors but those of one number are."""
    return isinstance(scale, Tensor) and scale.ndim > 0 and scale.shape[-1] > 1


def _wrong_kind(algorithm: Algorithm, method: str, found: Any, right: str) -> InputError:
    came = f"a {type(found).__name__}"
    if isinstance(found, tuple) and not hasattr(found, "_fields"):
        came += f" of {len(found)}"
    return _error(algorithm, f"{method} returned {came}; it should return {right}")


def _error(algorithm: Algorithm, words: str) -> InputError:
    return InputError(f"algorithm {type(algorithm).__name__}: {words}")
