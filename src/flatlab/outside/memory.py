"""How much memory is free for this process, and the refusal of what clearly needs more."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# Limit, use, and the part of the use that the system gives back: version 2, then version 1.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def free_memory() -> int:
    """Return the bytes that this process can still take: of the machine, and of its cgroups."""
    return max(0, min([_of_machine(), *_of_cgroups()]))


def require_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse what needs more memory than is free."""
    if needed > (free := free_memory()):
        raise UserError(
            f"{what} needs {_gib(needed)} GiB of memory and {_gib(free)} are free here: {remedy}"
        )


def saved_bytes(run: Callable[[], Any]) -> int:
    """Return how many bytes of distinct tensors autograd saves in a pass.

    Their values are kept, because the pass may take derivatives itself; their graph is not, because
    an output that its own function saves would never be freed.
    """
    from torch.autograd.graph import saved_tensors_hooks

    saved: dict[int, UntypedStorage] = {}  # alive until the end: a freed address is reused

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved.setdefault(storage.data_ptr(), storage)
        return tensor.detach()

    with saved_tensors_hooks(count, lambda tensor: tensor):
        run()
    return sum(storage.nbytes() for storage in saved.values())


def saved_per_example(run: Callable[[int], Any]) -> float | None:
    """Return the bytes that autograd saves for each example of a pass; None if the pass fails.

    `run(count)` passes that many examples. What an example adds is the difference of four and two.
    """
    with contextlib.suppress(Exception):
        two, four = (saved_bytes(functools.partial(run, count)) for count in (2, 4))
        return (four - two) / 2
    return None


def _gib(size: int) -> str:
    return f"{min(size, 10**300) / 2**30:.3g}"


def _of_machine() -> int:
    """Return what Linux calls available; elsewhere all the memory there is."""
    for line in _text(PROC / "meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _of_cgroups() -> Iterator[int]:
    """Yield what is left under each memory limit of this process and the groups above its own."""
    for line in _text(PROC / "self" / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers not in ("", "memory"):
            continue
        root = CGROUPS / controllers
        # Inside a container the path may be the host's, and the own group is the root.
        own = Path(path.lstrip("/"))
        for folder in (root / part for part in (own, *own.parents)):
            for limit, use, returned in _FILES:
                numbers = [_text(folder / name).strip() for name in (limit, use)]
                if all(number.isdigit() for number in numbers):
                    stat = dict(line.split() for line in _text(folder / "memory.stat").splitlines())
                    yield int(numbers[0]) - int(numbers[1]) + int(stat.get(returned, 0))


def _text(path: Path) -> str:
    """Return a file's content, "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
