"""The hooks that authors of components override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import SimpleNamespace


class Hooks:
    """Hooks around changes of state; all do nothing by default.

    If ``begin_…`` raises, the state stays; if ``end_…`` raises, the former state is restored. The
    command fails in both cases. ``data`` is the command.
    """

    async def configure(self, config: SimpleNamespace) -> None:
        """Apply a new configuration, which has passed the schema; raise to reject it."""

    async def handle_summary_state(self) -> None:
        """React to a change of state: open or close connections, start or stop loops."""

    async def begin_start(self, data: Any) -> None:
        """Before STANDBY becomes DISABLED, after :meth:`configure`."""

    async def end_start(self, data: Any) -> None:
        """After STANDBY has become DISABLED."""

    async def begin_enable(self, data: Any) -> None:
        """Before DISABLED becomes ENABLED."""

    async def end_enable(self, data: Any) -> None:
        """After DISABLED has become ENABLED."""

    async def begin_disable(self, data: Any) -> None:
        """Before ENABLED becomes DISABLED."""

    async def end_disable(self, data: Any) -> None:
        """After ENABLED has become DISABLED."""

    async def begin_standby(self, data: Any) -> None:
        """Before DISABLED or FAULT becomes STANDBY."""

    async def end_standby(self, data: Any) -> None:
        """After DISABLED or FAULT has become STANDBY."""

    async def begin_exitControl(self, data: Any) -> None:  # noqa: N802
        """Before STANDBY becomes OFFLINE."""

    async def end_exitControl(self, data: Any) -> None:  # noqa: N802
        """After STANDBY has become OFFLINE, before the component ends."""

    async def begin_enterControl(self, data: Any) -> None:  # noqa: N802
        """Before OFFLINE becomes STANDBY."""

    async def end_enterControl(self, data: Any) -> None:  # noqa: N802
        """After OFFLINE has become STANDBY."""

    async def close_tasks(self) -> None:
        """Stop all tasks that the component has started; called once, at its end."""
