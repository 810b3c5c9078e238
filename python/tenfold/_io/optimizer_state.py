"""The state of one parameter of an optimizer, from a saved one."""

from __future__ import annotations

from tenfold._reports import Mismatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What torch's optimizers keep in tensors like the parameter itself.
_LIKE_THE_PARAMETER = frozenset(
    [
        "acc_delta",
        "ax",
        "exp_avg",
        "exp_avg_sq",
        "exp_inf",
        "grad_avg",
        "max_exp_avg_sq",
        "momentum_buffer",
        "prev",
        "square_avg",
        "step_size",
        "sum",
        "variance",
    ]
)


class ParameterState:
    """The state of one parameter: tensors to be filled where the source has tensors."""

    def __init__(self, optimizer: Any, param: Any, cast: bool, tied: dict[Any, Any]) -> None:
        import torch

        self.loaded: list[str] = []
        self.mismatched: list[Mismatch] = []
        self.cast_helps: set[str] = set()
        self.destinations: dict[str, Any] = {}
        self._param = param
        self._current = optimizer.state.get(param)
        self._cast = cast
        self._tied = tied
        self._is_torchs = type(optimizer).__module__.startswith("torch.optim")
        self._torch = torch

    def build(self, saved: Any, options: dict[str, Any], name: str, source_name: str) -> Any:
        """The state with tensors to be filled for those of `saved`; None if that is None.

        Args:
            saved: What the source has for the parameter: a dict.
            options: Of its group in the source.
            name: ``"state.0"``, as the target calls it in reports.
            source_name: The same in the source.
        """
        self._on_device = bool(options.get("capturable") or options.get("fused"))
        self._name, self._source_name = name, source_name
        return None if saved is None else self._build(saved, self._current, (), None)

    def _build(self, saved: Any, current: Any, path: tuple[str, ...], key: Any) -> Any:
        if isinstance(saved, self._torch.Tensor):
            return self._destination(saved, current, path, key)
        if isinstance(saved, dict):
            known = current if isinstance(current, dict) else {}
            return {
                name: self._build(value, known.get(name), (*path, str(name)), name)
                for name, value in saved.items()
            }
        if isinstance(saved, (list, tuple)):
            items = current if isinstance(current, (list, tuple)) else ()
            return type(saved)(
                self._build(value, items[at] if at < len(items) else None, (*path, str(at)), None)
                for at, value in enumerate(saved)
            )
        self.loaded.append(".".join((self._name, *path)))
        return saved

    def _destination(self, saved: Any, current: Any, path: tuple[str, ...], key: Any) -> Any:
        """The tensor of the target, or a new one, of torch's choice of dtype and device."""
        name = ".".join((self._name, *path))
        dtype, device = self._dtype_and_device(saved, key)
        shape = self._shape(saved, current, key)
        casts = dtype != saved.dtype and saved.ndim > 0 and not self._cast
        impossible = saved.is_complex() and not dtype.is_complex
        if shape != saved.shape or casts or impossible:
            self.mismatched.append(
                Mismatch(name, _text(dtype, shape), _text(saved.dtype, saved.shape))
            )
            if shape == saved.shape and not impossible:
                self.cast_helps.add(name)
            return None
        self.loaded.append(name)
        made = current
        if not self._can_be_filled(current, saved.shape, dtype, device):
            made = self._new(saved, dtype, device)
        self.destinations[".".join((self._source_name, *path))] = made
        return made

    def _new(self, saved: Any, dtype: Any, device: Any) -> Any:
        # What was one tensor when it was saved is one again.
        same = (saved.data_ptr(), saved.shape, saved.stride(), saved.dtype, dtype, device)
        if saved.numel() == 0:
            return self._torch.empty(saved.shape, dtype=dtype, device=device)
        if same not in self._tied:
            self._tied[same] = self._torch.empty(saved.shape, dtype=dtype, device=device)
        return self._tied[same]

    def _dtype_and_device(self, saved: Any, key: Any) -> tuple[Any, Any]:
        """As `Optimizer.load_state_dict` chooses them."""
        if key == "step":
            if self._on_device:
                return self._torch.float32, self._param.device
            return saved.dtype, saved.device
        floating = self._param.is_floating_point()
        return self._param.dtype if floating else saved.dtype, self._param.device

    def _shape(self, saved: Any, current: Any, key: Any) -> Any:
        if self._is_torchs and key in _LIKE_THE_PARAMETER:
            return self._param.shape
        if isinstance(current, self._torch.Tensor) and key not in (None, "step"):
            return current.shape
        return saved.shape

    def _can_be_filled(self, tensor: Any, shape: Any, dtype: Any, device: Any) -> bool:
        return bool(
            isinstance(tensor, self._torch.Tensor)
            and tensor.layout is self._torch.strided
            and not tensor.requires_grad
            and (tensor.shape, tensor.dtype, tensor.device) == (shape, dtype, device)
            and all(
                step > 0
                for size, step in zip(tensor.shape, tensor.stride(), strict=True)
                if size > 1
            )
        )


def _text(dtype: Any, shape: Any) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
