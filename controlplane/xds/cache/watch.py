"""What one client wants, has been told, and must be told of one type.

A watch knows resources and versions; nonces, order between types and bytes on the wire belong to the
server. It tracks each resource, also for clients that speak state-of-the-world: that is what makes it
possible to send only what changed, to keep a removed cluster until nothing routes to it, and to keep
one refused resource from holding back the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from controlplane.model.resources import Resource, ResourceSet
from controlplane.xds.cache.subscription import Change, Subscription


@dataclass(frozen=True, slots=True)
class Parcel:
    """The content of one response: resources and names without one, both sorted by name."""

    type_url: str
    version: str
    """Version of the set it was made from."""
    resources: tuple[Resource, ...]
    absent: tuple[str, ...] = ()
    """Names to be told as missing or removed."""
    is_full: bool = False
    """The client takes what is not in it as removed."""
    is_interim: bool = False
    """Full, but with resources that are kept until routes have moved away from them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name the client hears about."""
        return tuple(resource.name for resource in self.resources) + self.absent


class Watch:
    """One client's view of one type."""

    __slots__ = (
        "_accepted",
        "_asked",
        "_doubtful",
        "_known",
        "_quiet",
        "_refused",
        "_retry",
        "owes_reply",
        "subscription",
    )

    def __init__(self, *, type_url: str) -> None:
        self.subscription = Subscription(type_url=type_url)
        self.owes_reply = False
        """The client waits for a first answer, even an empty one."""
        self._known: dict[str, Resource | None] = {}
        """What the client was last told of each name; `None`: that it is missing."""
        self._accepted: dict[str, Resource] = {}
        """What the client last took of each name, until it is told to be missing."""
        self._asked: set[str] = set()
        """Names to be answered even if nothing about them changed."""
        self._refused: dict[str, str] = {}
        """Names in refused responses, with the version that was refused."""
        self._doubtful: set[str] = set()
        """Refused in company: perhaps another resource of the response was at fault. Removals too."""
        self._retry: set[str] = set()
        """Doubtful names that get one try on their own, since content has changed."""
        self._quiet: tuple[str, bool] | None = None
        """The last question that `select` answered with nothing, until something changes."""

    def assume(self, versions: Mapping[str, str]) -> None:
        """Take the versions that a client says it holds from an earlier stream."""
        for name, version in versions.items():
            self._known[name] = Resource(name, version, b"")
        self._quiet = None

    def apply(self, change: Change, *, current: ResourceSet | None = None) -> None:
        """Take a change of the subscription; `current` tells what a wildcard stands for."""
        self._quiet = None
        self._asked |= change.asked
        if change.is_everything_asked and current is not None:
            self._asked |= current.resources.keys()
        for name in change.dropped:
            self._forget(name)
        if change.is_wildcard_dropped:
            for name in self._known.keys() - self.subscription.names:
                self._forget(name)

    def excuse(self, names: Collection[str]) -> None:
        """Drop the duty to answer names as such: only what differs from what the client holds counts."""
        self._asked.difference_update(names)

    def force(self, names: Collection[str]) -> None:
        """Answer these names again even if unchanged, as far as the client wants them."""
        self._quiet = None
        self._asked |= {name for name in names if self.subscription.wants(name)}

    def content_changed(self) -> None:
        """Note that the set has a new version: what was refused in company gets another try."""
        self._quiet = None
        self._retry |= self._doubtful
        self._doubtful.clear()

    def select_full(self, current: ResourceSet, *, may_remove: bool) -> Parcel | None:
        """Choose the next response for a client that takes each as the whole truth.

        Without `may_remove` the client's vanished resources stay in it (xDS rule 1: clusters go only
        after the routes that used them).
        """
        if self._quiet == (current.version, may_remove):
            return None
        wanted = self._wanted(current)
        kept = {} if may_remove else self._kept(current)
        known = {name: held.version for name, held in self._known.items() if held is not None}
        desired = {name: resource.version for name, resource in (wanted | kept).items()}
        if known == desired and not self._asked and not self.owes_reply:
            self._quiet = (current.version, may_remove)
            return None
        resources = tuple(resource for _, resource in sorted((wanted | kept).items()))
        return Parcel(current.type_url, current.version, resources, is_full=True, is_interim=bool(kept))

    def select_changed(
        self, current: ResourceSet, *, may_remove: bool, tells_vanished: bool = True
    ) -> Parcel | None:
        """Choose the next response for a client that takes each as what changed.

        Without `may_remove` vanished resources are still in use: none is told as missing, and one that
        must be answered is answered as it was. `tells_vanished`: they are told without being asked for.
        What was refused in company comes last and one by one, so that a broken resource holds back no
        other.
        """
        if self._quiet == (current.version, may_remove):
            return None
        vanished = self._vanished(current)
        resources = tuple(self._changed(current))
        absent = {name for name in self._asked if name not in current.resources}
        if not may_remove:
            absent -= vanished.keys()
            resources += tuple(self._repeatable(vanished))
        elif tells_vanished:
            absent |= vanished.keys()
        if resources or absent or self.owes_reply:
            return Parcel(current.type_url, current.version, resources, tuple(sorted(absent)))
        lost = [name for name in self._retry if name not in current.resources and not self._known.get(name)]
        if lost:
            return Parcel(current.type_url, current.version, (), tuple(sorted(lost)))
        for name in sorted(self._retry):
            if name in current.resources:
                return Parcel(current.type_url, current.version, (current.resources[name],))
        self._quiet = (current.version, may_remove)
        return None

    def sent(self, parcel: Parcel) -> tuple[Resource, ...]:
        """Note a response as sent, and give the resources that are news to the client."""
        news = tuple(resource for resource in parcel.resources if self._is_news(resource))
        if parcel.is_full:
            self._known.clear()
            self._asked.clear()
        for resource in parcel.resources:
            self._known[resource.name] = resource
        for name in parcel.absent:
            self._accepted.pop(name, None)
            if name in self.subscription.names:
                self._known[name] = None
            else:
                self._known.pop(name, None)
        for name in parcel.names:
            self._asked.discard(name)
            self._retry.discard(name)
            self._doubtful.discard(name)
            self._refused.pop(name, None)
        self.owes_reply = False
        self._quiet = None
        return news

    def accepted(self, parcel: Parcel) -> None:
        """Note that the client took a response."""
        if parcel.is_full:
            self._refused.clear()
            self._accepted.clear()
        self._quiet = None
        for resource in parcel.resources:
            self._accepted[resource.name] = resource
            if self._refused.get(resource.name) == resource.version:
                del self._refused[resource.name]
                self._retry.discard(resource.name)
                self._doubtful.discard(resource.name)

    def refused(self, parcel: Parcel, current: ResourceSet | None = None) -> None:
        """Note that the client refused a response: nothing in it is sent again as it is.

        Parts of it may have been applied, so the client's state of each name is unknown. The refusal
        may come late, when `current` is no longer what the response was made from: content has changed
        already then, and what was refused in company gets its next try without waiting for more.
        """
        self._quiet = None
        is_late = current is not None and current.version != parcel.version
        again = self._retry if is_late else self._doubtful
        for resource in parcel.resources:
            held = self._known.get(resource.name)
            if held is not None and held.version == resource.version:
                self._refused[resource.name] = resource.version
                # The newest verdict counts: an earlier one in company may have left a try to come.
                self._retry.discard(resource.name)
                self._doubtful.discard(resource.name)
                if not parcel.is_full and len(parcel.resources) > 1:
                    again.add(resource.name)
        # A removal goes unnoticed with what is refused beside it.
        again |= {name for name in parcel.absent if self._known.get(name) is None}

    def has_refused(self, current: ResourceSet) -> bool:
        """Tell whether the client stands by its refusal of something that is current."""
        resources = current.resources
        return any(
            name in resources and resources[name].version == version
            for name, version in self._refused.items()
        )

    def _changed(self, current: ResourceSet) -> list[Resource]:
        names: Collection[str] = current.resources
        if not self.subscription.is_wildcard:
            names = sorted(self.subscription.names & current.resources.keys())
        return [
            current.resources[name]
            for name in names
            if name in self._asked or not self._has_current(name, current)
        ]

    def _wanted(self, current: ResourceSet) -> dict[str, Resource]:
        if self.subscription.is_wildcard:
            return dict(current.resources)
        return {
            name: current.resources[name] for name in self.subscription.names & current.resources.keys()
        }

    def _vanished(self, current: ResourceSet) -> dict[str, Resource]:
        return {
            name: held
            for name, held in self._known.items()
            if held is not None and name not in current.resources and self.subscription.wants(name)
        }

    def _repeatable(self, vanished: Mapping[str, Resource]) -> list[Resource]:
        """Vanished resources that must be answered, as the client took them; not while that is open."""
        taken = [
            (held, self._accepted[name])
            for name, held in sorted(vanished.items())
            if name in self._asked and name in self._accepted
        ]
        return [
            last for held, last in taken if held.version in {last.version, self._refused.get(held.name)}
        ]

    def _kept(self, current: ResourceSet) -> dict[str, Resource]:
        """Vanished resources as the client uses them: not in the version it refused."""
        vanished = {
            name: self._accepted.get(name) if self._refused.get(name) == held.version else held
            for name, held in self._vanished(current).items()
        }
        return {name: resource for name, resource in vanished.items() if resource is not None}

    def _has_current(self, name: str, current: ResourceSet) -> bool:
        held = self._known.get(name)
        return (
            held is not None
            and name in current.resources
            and held.version == current.resources[name].version
        )

    def _is_news(self, resource: Resource) -> bool:
        """Tell whether sending a resource may change the client; what it refused, it may not have."""
        held = self._known.get(resource.name)
        if held is None or held.version != resource.version:
            return True
        return resource.name in self._asked or resource.name in self._refused

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._accepted.pop(name, None)
        self._refused.pop(name, None)
        self._doubtful.discard(name)
        self._retry.discard(name)
        if not self.subscription.wants(name):
            self._asked.discard(name)
