"""Who may use a broker: users with passwords, and what the access control lists allow them."""

import secrets
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

LOGIN_MODULES = "org.apache.kafka.common.security"
# Enough that nobody guesses it while a test runs.
PASSWORD_BYTES = 12


class Mechanism(StrEnum):
    """How a client proves who it is, by the names of the command line."""

    PLAIN = "plain"
    SCRAM_256 = "scram-sha-256"
    SCRAM_512 = "scram-sha-512"


class User(StrEnum):
    """Who there is."""

    # May do everything.
    ADMIN = "admin"
    # May read all topics, in all groups, and write none.
    READER = "reader"
    # May read all topics, in no group.
    LONER = "loner"
    # May do nothing.
    STRANGER = "stranger"


def passwords() -> dict[str, str]:
    """New passwords."""
    return {user: secrets.token_hex(PASSWORD_BYTES) for user in User}


def login(mechanism: Mechanism, users: dict[str, str]) -> str:
    """The broker's JAAS configuration of a mechanism."""
    if mechanism is Mechanism.PLAIN:
        known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
        return f"{LOGIN_MODULES}.plain.PlainLoginModule required {known};"
    # These users are in the metadata, put there when it is formatted.
    return f"{LOGIN_MODULES}.scram.ScramLoginModule required;"


def scram_options(mechanisms: Iterable[Mechanism], users: dict[str, str]) -> list[str]:
    """The options of the storage tool that put the users into the metadata."""
    options: list[str] = []
    for mechanism in mechanisms:
        if mechanism is not Mechanism.PLAIN:
            for user, password in users.items():
                options += ["--add-scram", f"{mechanism.upper()}=[name={user},password={password}]"]
    return options


def described(users: dict[str, str], lists: bool) -> dict[str, dict[str, Any]]:
    """The users with their passwords, and what they may do."""
    rights: dict[User, str] = {User.ADMIN: "all", User.READER: "read", User.LONER: "read alone"}
    rights[User.STRANGER] = "none"
    return {
        user: {"password": password, "may": rights[User(user)] if lists else "all"}
        for user, password in users.items()
    }
