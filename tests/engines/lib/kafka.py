"""Apache Kafka: brokers that are their own controllers (KRaft), on the loopback address.

Each broker listens on three ports: CLIENT is the one of the URL, with the TLS and SASL that were
asked for; INTERNAL, without either, is for the other brokers, and for tests that prepare something
as the administrator; CONTROLLER is for the quorum. With TLS there is a fourth, EXPIRED, which is
CLIENT with an expired certificate.
"""

import shutil
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib import certificates, kafka_users
from lib.errors import FailureError
from lib.java import find_java
from lib.kafka_cache import STARTED, Cache, random_id, run_formatter
from lib.kafka_users import Mechanism, User
from lib.kafka_wire import GROUP, TOPIC, Connection
from lib.kind import JVM, Node, Plan, make_node_folder, node_folder
from lib.maven import HERE, Lock
from lib.ports import HOST, free_ports
from lib.process import until

# Small and quick to start, at the price of speed.
SMALL = ["-Xms192m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# Many programs' topics, and a log's limits looked at often, so that no test waits for minutes.
SHARED = ["-Xmx512m"]
SHARED_BROKER = {"log.retention.check.interval.ms": "500"}
# What lets a small heap do: 128 MB are Kafka's default.
SMALL_BROKER = {"log.cleaner.dedupe.buffer.size": "2097152"}
# What Kafka's own scripts give a broker.
BENCH = [
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
]
ACL_SECONDS = 30.0
OLDEST_JAVA = 17
# The number of a broker that is run for the cache only.
TRAINING = 0


@dataclass
class Broker:
    """A broker and its ports."""

    node: int
    client: int
    internal: int
    controller: int
    expired: int


class Kafka:
    """The kind of engine."""

    lock = Lock("kafka")
    processes = "brokers"
    marks: tuple[str, ...] = (JVM[0],)
    # One with a thousand partitions, on a machine that does other things, takes minutes.
    start_seconds = 240.0

    def options(self, parser: ArgumentParser) -> None:
        """The options of `start`."""
        parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="(default: 1)")
        parser.add_argument("--tls", action="store_true", help="TLS, with certificates made now")
        parser.add_argument(
            "--sasl",
            action="append",
            type=Mechanism,
            choices=list(Mechanism),
            default=[],
            help="how clients must prove who they are; more than one may be given",
        )
        parser.add_argument("--acl", action="store_true", help="access control lists; needs --sasl")
        parser.add_argument(
            "--bench", action="store_true", help="the JVM as Kafka's own scripts run it: fast"
        )
        parser.add_argument(
            "--set",
            action="append",
            type=setting,
            default=[],
            metavar="NAME=VALUE",
            help="a broker property, over those that are set here",
        )

    def check(self, options: Namespace) -> None:
        """Whether the options make sense, and Java and openssl are here."""
        if options.acl and not options.sasl:
            raise FailureError("--acl needs --sasl: without it all clients are the same user")
        find_java(OLDEST_JAVA)
        if options.tls:
            certificates.check()

    def plan(self, folder: Path, options: Namespace) -> Plan:
        """Writes the brokers' properties and formats their folders."""
        ports = iter(free_ports(4 * options.nodes))
        brokers = [
            Broker(node, next(ports), next(ports), next(ports), next(ports))
            for node in range(1, options.nodes + 1)
        ]
        if options.tls:
            certificates.make(folder / "tls")
        users = kafka_users.passwords() if options.sasl else {}
        java, cache = self._java(options, folder)
        for broker in brokers:
            made = make_node_folder(folder, broker.node)
            lines = properties(broker, brokers, folder, options, users)
            (made / "server.properties").write_text(lines)
        format_folders(cache, folder, brokers, kafka_users.scram_options(options.sasl, users))
        nodes = [
            Node(each.node, each.client, each.internal, [*java, "kafka.Kafka", "server.properties"])
            for each in brokers
        ]
        url = kafka_url([broker.client for broker in brokers])
        client = {"java": {"program": java[0], "classpath": java[-1]}}
        return Plan(nodes, url, details(brokers, folder, options, users) | client)

    def _java(self, options: Namespace, folder: Path) -> tuple[list[str], Cache]:
        """The JVM with its options and class path, and what is cached for it."""
        flags = [*(BENCH if options.bench else SMALL), *(SHARED if options.shared else []), *JVM]
        logs = [f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}", "-Dengine.log=log/broker.log"]
        with self.lock.cache() as cache:
            files = self.lock.fetch(cache)
            made = Cache(cache, [find_java(OLDEST_JAVA), *flags, *logs], files)
            if not made.is_filled():
                self._fill(made, folder)
            # A benchmark's broker is started as Kafka's own scripts do it.
            return [*made.java, *made.classpath] if options.bench else made.command(), made

    def _fill(self, cache: Cache, folder: Path) -> None:
        """Runs a broker for what is cached; who ends this start ends that one as well."""
        node = make_node_folder(folder, TRAINING)
        plain = Namespace(tls=False, sasl=[], acl=False, bench=False, shared=False, set=[])
        broker = Broker(TRAINING, *free_ports(4))
        lines = properties(broker, [broker], folder, plain, {})
        (node / "server.properties").write_text(lines)
        cache.fill(node)
        shutil.rmtree(node)

    def ready(self, folder: Path, nodes: list[Node]) -> bool:
        """Whether each of the brokers listens on all of its ports, and knows all of them.

        A broker serves on one port while it is still to find out that another one is taken; only
        its log says that it is through.
        """
        expected = {node.node for node in nodes}
        logs = [node_folder(folder, node.node) / "log" / "broker.log" for node in nodes]
        if not all(log.exists() and STARTED in log.read_text(errors="replace") for log in logs):
            return False
        try:
            for node in nodes:
                with Connection(node.probe) as connection:
                    if not expected <= connection.brokers():
                        return False
        except OSError:
            return False
        return True

    def finish(self, plan: Plan) -> None:
        """Gives those who read their rights, and waits until all brokers have heard of them."""
        if plan.details.get("users", {}).get(User.READER, {}).get("may") != "read":
            return
        with Connection(plan.nodes[0].probe) as connection:
            connection.allow_reading(User.READER, (TOPIC, GROUP))
            connection.allow_reading(User.LONER, (TOPIC,))
        for node in plan.nodes:
            with Connection(node.probe) as connection:
                until(
                    connection.has_lists,
                    ACL_SECONDS,
                    lambda: "a broker has not heard of the access control lists",
                )


def setting(text: str) -> tuple[str, str]:
    """A property with its value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def kafka_url(ports: list[int]) -> str:
    """A URL of brokers on these ports."""
    return "kafka://" + ",".join(f"{HOST}:{port}" for port in ports)


def details(
    brokers: list[Broker], folder: Path, options: Namespace, users: dict[str, str]
) -> dict[str, Any]:
    """What else there is to say: how clients get in, by the names of librdkafka's options too."""
    client = {"security.protocol": protocol(options)}
    shown: dict[str, Any] = {"internal_url": kafka_url([broker.internal for broker in brokers])}
    if options.tls:
        authority = str(folder / "tls" / "ca.crt")
        expired = kafka_url([broker.expired for broker in brokers])
        shown["tls"] = {"ca": authority, "expired_url": expired}
        client["ssl.ca.location"] = authority
    if options.sasl:
        shown["sasl"] = options.sasl
        shown["users"] = kafka_users.described(users, options.acl)
        client["sasl.mechanism"] = options.sasl[0].upper()
        client["sasl.username"] = User.ADMIN
        client["sasl.password"] = users[User.ADMIN]
    return shown | {"client": client}


def protocol(options: Namespace) -> str:
    """What clients speak, by Kafka's name."""
    transport = "SSL" if options.tls else "PLAINTEXT"
    return f"SASL_{transport}" if options.sasl else transport


def properties(
    broker: Broker, brokers: list[Broker], folder: Path, options: Namespace, users: dict[str, str]
) -> str:
    """A broker's configuration file."""
    public = {"CLIENT": broker.client} | ({"EXPIRED": broker.expired} if options.tls else {})
    listeners = public | {"INTERNAL": broker.internal, "CONTROLLER": broker.controller}
    protocols = {name: protocol(options) for name in public}
    protocols |= {"INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    voters = [f"{each.node}@{HOST}:{each.controller}" for each in brokers]
    entries = {
        "process.roles": "broker,controller",
        "node.id": str(broker.node),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "log.dirs": str(node_folder(folder, broker.node) / "data"),
        **replication(len(brokers)),
        **(SMALL_BROKER if not options.bench else {}),
        **(SHARED_BROKER if options.shared else {}),
        # Tests kill brokers: others take over after this, not after the 9 s of the default.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "group.initial.rebalance.delay.ms": "0",
    }
    for name in public:
        entries |= security(name, folder, options, users)
    if options.acl:
        entries["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        # Brokers and tests on INTERNAL are anonymous; with SASL nobody on CLIENT is.
        entries["super.users"] = f"User:ANONYMOUS;User:{User.ADMIN}"
    entries |= dict(options.set)
    return "".join(f"{name}={value}\n" for name, value in entries.items())


def replication(brokers: int) -> dict[str, str]:
    """All that Kafka keeps for itself is on all brokers, and outlives any one of them."""
    factor, in_sync = str(brokers), str(max(1, brokers - 1))
    entries = {"default.replication.factor": factor, "min.insync.replicas": in_sync}
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        entries |= {f"{topic}.replication.factor": factor, f"{topic}.min.isr": in_sync}
        entries[f"{topic}.num.partitions"] = "1"
    return entries | {
        "offsets.topic.replication.factor": factor,
        "offsets.topic.num.partitions": "1",
    }


def security(
    listener: str, folder: Path, options: Namespace, users: dict[str, str]
) -> dict[str, str]:
    """The TLS and SASL of a listener."""
    prefix = f"listener.name.{listener.lower()}"
    entries: dict[str, str] = {}
    if options.tls:
        certificate = "expired.pem" if listener == "EXPIRED" else "server.pem"
        entries[f"{prefix}.ssl.keystore.type"] = "PEM"
        entries[f"{prefix}.ssl.keystore.location"] = str(folder / "tls" / certificate)
    if options.sasl:
        names = ",".join(mechanism.upper() for mechanism in options.sasl)
        entries[f"{prefix}.sasl.enabled.mechanisms"] = names
    for mechanism in options.sasl:
        login = kafka_users.login(mechanism, users)
        entries[f"{prefix}.{mechanism}.sasl.jaas.config"] = login
    return entries


def format_folders(cache: Cache, folder: Path, brokers: list[Broker], users: list[str]) -> None:
    """Prepares the brokers' data folders, by Kafka's own program where users are put there."""
    cluster = random_id()
    folders = {broker.node: node_folder(folder, broker.node) for broker in brokers}
    if not users:
        for number, node in folders.items():
            cache.copy_storage(node, number, cluster)
        return
    with ThreadPoolExecutor() as pool:
        formats = [
            pool.submit(run_formatter, cache.command(), node, cluster, users)
            for node in folders.values()
        ]
    failed = [complaint for format_ in formats if (complaint := format_.result())]
    if failed:
        raise FailureError(failed[0])
