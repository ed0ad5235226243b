"""Record: run a model on a copy, operation by operation, and follow its dimensions.

Traps that shaped this file:

- Tensors are known by their identity, which another tensor may get once the first is gone: the references are weak.
- Dimensions are types, so writes through views need nothing. Only an operation that moves dimensions of a tensor in
  place replaces what is known of it.
- Fused kernels hide what they do: mkldnn, the Transformer's fast path and fused attention are off.
- A forward may ask for the value of a tensor and go another way by it. Such questions are answered the other way, too.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from awn.adapt.interrupt import check_interrupt
from awn.adapt.operation import Operation, schema_of, tensors_in
from awn.adapt.table import rule_for, unknown
from awn.adapt.terms import INPUT, Term, freeze, unify
from awn.basics.batches import Batch

#: A dimension of a parameter or buffer: its name and the number of the dimension.
Place = tuple[str, int]

_RANDOM = frozenset(
    [
        "bernoulli",
        "rand",
        "randn",
        "randint",
        "randperm",
        "normal",
        "uniform",
        "native_dropout",
        "multinomial",
        "exponential",
        "poisson",
        "rand_like",
        "randn_like",
        "randint_like",
        "random",
        "geometric",
        "cauchy",
        "log_normal",
    ]
)
_LIKE_TANH = ("tanh", "sigmoid", "hardtanh", "hardsigmoid")
_LIKE_RELU = ("relu", "gelu", "silu", "elu", "hardswish", "mish", "softplus", "threshold", "_prelu_kernel")
# Operations that answer a question of the forward by a number.
_ANSWERS = ("_local_scalar_dense", "is_nonzero", "equal")
_NOT_THE_MODEL = (f"{os.sep}torch{os.sep}", f"{os.sep}awn{os.sep}adapt{os.sep}")
# Questions that are answered the other way, at most.
_MOST_QUESTIONS = 8


class Recorder(TorchDispatchMode):
    """What is known of a model's dimensions; parameters keep their terms from run to run.

    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> recorder = Recorder(model)
    >>> recorder.run(model, Batch((torch.randn(4, 3),), {}))
    >>> recorder.axes["0.weight"][0].root is recorder.axes["2.weight"][1].root
    True
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensors: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self.parameters = {name for name, _ in model.named_parameters()}
        #: The terms of every parameter and buffer.
        self.axes: dict[str, list[Term]] = {}
        #: The names of parameters and buffers that ran.
        self.ran: set[str] = set()
        #: Terms of weights that read units, by id; terms that are summed over with no weight at hand.
        self.readers: dict[int, Term] = {}
        self.bare: list[Term] = []
        #: The terms that each module's own forward meets, by its path.
        self.seen: dict[str, dict[int, Term]] = defaultdict(dict)
        self._model, self._named = model, {id(tensor): name for name, tensor in self.tensors.items()}
        for name, tensor in self.tensors.items():
            why = None if tensor.is_floating_point() else f"the buffer {name!r} counts or indexes"
            self.axes[name] = [Term(size, why) for size in tensor.shape]
        self._dims: MutableMapping[Tensor, list[Term]] = WeakTensorKeyDictionary()
        self._weights: MutableMapping[Tensor, bool] = WeakTensorKeyDictionary()
        self._stack: list[str] = []
        #: Gains of activations by the terms that they act on, see `awn.core.initialise.gain_of`.
        self.gains: list[tuple[Term, float]] = []
        #: Whether a forward draws from the random numbers of Python or NumPy; the seed of these.
        self.draws, self.seed = False, 0
        self._flipped: str | None = None
        self._questions: dict[str, None] = {}

    def run(self, model: nn.Module, example: Batch) -> None:
        """Run the model on an example, and again with other answers where the forward asks for values."""
        self._run(model, example, None)
        for question in list(self._questions)[:_MOST_QUESTIONS]:
            with contextlib.suppress(Exception):  # such as an assertion that fails with the other answer
                self._run(model, example, question)

    def _run(self, model: nn.Module, example: Batch, flipped: str | None) -> None:
        self._dims, self._weights, self._stack = WeakTensorKeyDictionary(), WeakTensorKeyDictionary(), [""]
        self._flipped, self._questions = flipped, {}
        for name, tensor in self.tensors.items():
            self._keep(tensor, self.axes[name], weight=True)
        for tensor in example.tensors:
            self._keep(tensor, [Term(size, INPUT) for size in tensor.shape])
        before = {id(value) for module in model.modules() for value in vars(module).values()}
        with self._following(model), quiet(self.seed), self:
            state = _states()
            result = model(*example.args, **example.kwargs)
            self.draws |= state != _states()
        for tensor in tensors_in(result):
            for term in self.dims(tensor):
                freeze(term, f"it is an output of {type(model).__name__}")
        self._freeze_kept(model, before)

    def release(self) -> None:
        """Let go of the copy that ran: of its tensors, only the shapes are needed from here on."""
        self.tensors = {name: torch.empty_like(tensor, device="meta") for name, tensor in self.tensors.items()}
        self._model, self._named = nn.Module(), {}
        self._dims, self._weights = WeakTensorKeyDictionary(), WeakTensorKeyDictionary()

    def _freeze_kept(self, model: nn.Module, before: set[int]) -> None:
        """Activations that a forward stores on a module are outputs like others."""
        for path, module in model.named_modules():
            for name, value in vars(module).items():
                if name in ("_parameters", "_buffers", "_modules") or (
                    id(value) in before and not isinstance(value, list | dict)
                ):
                    continue
                for tensor in tensors_in(value):
                    for term in self._dims.get(tensor, ()) if id(tensor) not in self._named else ():
                        freeze(term, f"it is stored as {name!r} of {path or type(module).__name__}")

    @contextlib.contextmanager
    def _following(self, model: nn.Module) -> Iterator[None]:
        """Know which module's forward runs."""
        handles = []
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(lambda *_, path=path: self._stack.append(path)))
            handles.append(module.register_forward_hook(lambda *_: self._leave(), always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self) -> None:  # a hook that returned something would replace the result
        self._stack.pop()

    def dims(self, tensor: Tensor) -> list[Term]:
        """The terms of a tensor's dimensions; a tensor that no operation made is a constant."""
        if tensor not in self._dims:
            self._keep(tensor, [Term(size, "it meets a constant tensor") for size in tensor.shape], weight=True)
        return self._dims[tensor]

    def give(self, tensor: Tensor, dims: Sequence[Term], *, moves: bool, why: str) -> None:
        """Say what a result's dimensions are; one that was changed in place has some already."""
        if [term.size for term in dims] != list(tensor.shape):
            raise AssertionError(f"{why}: {[term.size for term in dims]} for {tuple(tensor.shape)}")
        if tensor not in self._dims or moves:
            self._dims[tensor] = list(dims)
        for one, two in zip(self._dims[tensor], dims, strict=True):
            unify(one, two, why)

    def contract(self, sides: Sequence[tuple[Tensor, int]]) -> None:
        """A weight that meets an activation in a sum of products reads units; a sum without a weight is bare."""
        weights = [self.dims(tensor)[dim] for tensor, dim in reversed(sides) if tensor in self._weights]
        if weights and len(sides) == 2:
            self.readers[id(weights[0])] = weights[0]
        else:
            tensor, dim = sides[0]
            self.bare.append(self.dims(tensor)[dim])

    def reads(self, term: Term) -> None:
        """Note that a weight's dimension reads units."""
        self.readers[id(term)] = term

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        check_interrupt()
        named, schema = dict(kwargs or {}), schema_of(func)
        rule = rule_for(schema)
        if rule is None and any("Tensor" in str(one.type) for one in func._schema.returns):
            with self:
                result = func.decompose(*args, **named)
            if result is not NotImplemented:
                return result
        result = without_chance(func, args, named)
        if schema.name in _ANSWERS:
            return self._answer(result)
        arguments = dict(schema.arguments) | dict(zip((n for n, _ in schema.arguments), args, strict=False)) | named
        self._note(Operation(self, func, arguments, result, self._here()), rule or unknown)
        return result

    def _answer(self, value: Any) -> Any:
        """The answer to a question of the forward, or the other one."""
        if not isinstance(value, bool):
            return value
        line = _asking_line()
        self._questions[line] = None
        return value if self._flipped != line else not value

    def _here(self) -> str:
        path = self._stack[-1]
        module = self._model.get_submodule(path) if path else self._model
        return f"{type(module).__name__} {path!r}" if path else type(module).__name__

    def _note(self, operation: Operation, rule: Any) -> None:
        terms = [term for tensor in operation.inputs for term in self.dims(tensor)]
        weight = all(tensor in self._weights for tensor in operation.inputs)
        self.ran.update(self._named[id(tensor)] for tensor in operation.inputs if id(tensor) in self._named)
        if operation.outs:
            rule(operation)
            gain = _gain(operation)
            self.gains += [(term, gain) for term in self.dims(operation.x)] if gain is not None else []
        for tensor in operation.outs:
            first = self._dims.get(operation.outs[0]) if tensor.shape == operation.outs[0].shape else None
            dims = self._dims.get(tensor) or first or operation.fixed(tensor.shape)
            if not weight and id(tensor) not in self._named:
                # The same units in an activation: the weight's own term tells that it is the weight.
                dims = [Term(term.size, same_as=term.root) for term in dims]
            self._keep(tensor, dims, weight=weight or id(tensor) in self._named)
            terms += dims
        self.seen[self._stack[-1]].update((id(term), term) for term in terms)

    def _keep(self, tensor: Tensor, dims: list[Term], weight: bool = False) -> None:
        self._dims[tensor] = dims
        if weight:
            self._weights[tensor] = True
        else:
            self._weights.pop(tensor, None)


def _states() -> tuple[Any, ...]:
    """The states of the random generators of Python and NumPy."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else int(numpy.random.get_state()[2])


def _gain(operation: Operation) -> float | None:
    """The gain of Kaiming+ after an activation."""
    if operation.name == "hardtanh" and operation["min_val"] == 0:  # ReLU6
        return math.sqrt(2)
    if operation.name == "leaky_relu":
        return nn.init.calculate_gain("leaky_relu", operation["negative_slope"])
    return 1.0 if operation.name in _LIKE_TANH else math.sqrt(2) if operation.name in _LIKE_RELU else None


def _asking_line() -> str:
    """The line of the model's code that asks for a value."""
    frame = sys._getframe(2)
    while frame.f_back is not None and any(part in frame.f_code.co_filename for part in _NOT_THE_MODEL):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def without_chance(function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Run an operation; one that draws numbers gives the same ones for every unit, always.

    >>> without_chance(torch.ops.aten.rand.default, ([2],), {})
    tensor([0.5000, 0.5000])
    """
    name, result = schema_of(function).name, function(*args, **kwargs)
    if name not in _RANDOM:
        return result
    if name == "native_dropout":
        return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
    if name == "randperm":
        return result.copy_(torch.arange(len(result)))
    low = args[0] if name == "randint" and "low" in function._schema.overload_name else 0
    return result.fill_(1 if name == "bernoulli" else 0.5 if result.is_floating_point() else low)


@contextlib.contextmanager
def quiet(seed: int = 0) -> Iterator[None]:
    """No fused kernels, no gradients, and always the same random numbers; the caller restores the random states."""
    fast, mkldnn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # torch.backends.mkldnn.flags would set other flags as well, and warn.
        torch._C._set_mkldnn_enabled(False)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Of an instance norm without tensors, which runs with any size, but warns.
            warnings.filterwarnings("error", ".*does not match num_features")
            yield
    finally:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast)
