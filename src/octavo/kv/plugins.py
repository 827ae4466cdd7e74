"""KV policies of other packages, found through the entry-point group ``octavo.kv``.

    [project.entry-points."octavo.kv"]
    "placement.buddy" = "my_package.buddy:BuddyPlacement"          seam.name = class

The class is built and used as those built in are: see octavo.kv.interfaces. Only a policy that is chosen is imported. It is used through a
guard, which names it when it fails: see octavo.kv.guard.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.kv.guard import GUARDS, PolicyError
from octavo.kv.interfaces import Admission, Eviction, Placement, PrefixIndex, Victim

GROUP = "octavo.kv"

PROTOCOLS: dict[str, type] = {
    "placement": Placement,
    "prefix_index": PrefixIndex,
    "eviction": Eviction,
    "admission": Admission,
    "victim": Victim,
}


def setting_of(seam: str) -> str:
    """The field of EngineArgs that chooses a seam's policy."""
    return "preemption_victim" if seam == "victim" else f"kv_{seam}"


def plugin_names(seam: str) -> list[str]:
    """What installed packages offer for a seam; nothing is imported."""
    return sorted(name for each in entry_points(group=GROUP) for kind, _, name in [each.name.partition(".")] if kind == seam)


def load_plugin(seam: str, name: str) -> Callable[..., Any]:
    """A constructor for the policy that a package offers under this name.

    It raises InvalidRequestError, naming the plugin, if the policy cannot be built or lacks a member of its Protocol.

    Raises:
        InvalidRequestError: if it cannot be imported.
        KeyError: if there is none of this name.
    """
    found = list(entry_points(group=GROUP, name=f"{seam}.{name}"))
    if not found:
        raise KeyError(name)
    entry = found[0]
    try:
        policy = entry.load()
    except Exception as error:
        raise _broken(seam, name, entry, f"cannot be imported: {error!r}") from error

    def blame(what: str) -> PolicyError:
        return PolicyError(_told(seam, name, entry, what), seam)

    def build(*args: Any) -> Any:
        try:
            built = policy(*args)
            missing = [member for member in _members(PROTOCOLS[seam]) if not hasattr(built, member)]
        except InvalidRequestError:
            raise
        except Exception as error:
            raise _broken(seam, name, entry, f"cannot be built: {error!r}") from error
        if missing:
            raise _broken(seam, name, entry, f"lacks {', '.join(missing)}")
        try:
            return GUARDS[seam](built, blame, *args)
        except PolicyError as error:
            raise InvalidRequestError(str(error), field=setting_of(seam)) from error

    return build


def _members(protocol: type) -> list[str]:
    """What a policy must have."""
    return [name for name in vars(protocol) if name == "__len__" or not name.startswith("_")]


def _broken(seam: str, name: str, entry: EntryPoint, what: str) -> InvalidRequestError:
    return InvalidRequestError(_told(seam, name, entry, what), field=setting_of(seam))


def _told(seam: str, name: str, entry: EntryPoint, what: str) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package"
    return f"{setting_of(seam)} = {name!r}: the plugin {entry.value}, of {package}, {what}"
