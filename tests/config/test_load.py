"""Files in, settings out, or everything that is wrong with them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpbroker.amqp.settings import PeerSettings
from amqpbroker.config.contract import Section
from amqpbroker.config.defaults import default_settings
from amqpbroker.config.document import Problem
from amqpbroker.config.load import ConfigError, load_files
from amqpbroker.config.model import (
    MECHANISMS,
    AddressSection,
    AddressSettingsSection,
    BrokerSection,
    File,
    ListenerSection,
    LoggingSection,
    QueueSection,
)
from amqpbroker.engine.settings import BrokerSettings, DeclaredAddress, QueueSettings
from amqpbroker.ops.log import LogSettings
from amqpbroker.runtime.settings import ListenerSettings, ServeSettings

EXAMPLE = Path(__file__).parents[2] / "conf" / "broker.yaml"


def load(tmp_path: Path, *texts: str, **environment: str) -> ServeSettings:
    files = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        files.append(file)
    return load_files(files, environment)


def problems(tmp_path: Path, *texts: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *texts)
    return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]


def test_an_empty_file_is_a_broker_without_a_file(tmp_path: Path) -> None:
    assert load(tmp_path, "") == default_settings()


def test_null_is_not_set(tmp_path: Path) -> None:
    text = "broker: {name: null, data_dir: null}\nlisteners: null\nlogging: {level: null}\naddresses:\n"
    assert load(tmp_path, text) == default_settings()


def test_the_example_states_the_defaults_and_one_queue() -> None:
    settings = load_files([EXAMPLE], {})
    stock = default_settings()
    peer = PeerSettings(container_id="broker-1")
    listener = ListenerSettings(name="amqp", bind="localhost:5672", peer=peer)
    assert settings.listeners == (listener,)
    assert settings.logging == stock.logging
    assert settings.shutdown_grace_ms == stock.shutdown_grace_ms
    orders = DeclaredAddress("orders", QueueSettings("orders", durable=True))
    assert settings.broker == BrokerSettings(addresses=(orders,))


def test_the_example_takes_its_name_from_the_environment() -> None:
    settings = load_files([EXAMPLE], {"AMQPBROKER_NAME": "other"})
    assert settings.listeners[0].peer.container_id == "other"


def test_every_key_reaches_the_settings(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
broker: {name: b, shutdown_grace: 1 s}
listeners:
  - name: one
    bind: "*:0"
    sasl: [ANONYMOUS]
    bare_amqp: false
    max_frame_size: 4 KiB
    channel_max: 7
    idle_timeout: unlimited
    handshake_timeout: 1 s
    max_connections: unlimited
    max_message_size: -1
    incoming_window: 8 KiB
    incoming_bytes_max: 1 MB
    outgoing_buffer: 64 KiB
    drain_timeout: 1 min
    credit: 10
    credit_low: 3
    tcp_nodelay: false
    backlog: 5
logging: {level: debug, format: json}
address_settings:
  - match: "#"
    auto_create_addresses: false
    auto_create_queues: false
    auto_delete_queues: false
    auto_delete_queues_delay: 1 h
    auto_delete_addresses: false
addresses:
  - {name: a, routing: anycast, queues: [{name: q, durable: false, type: standard, routing: anycast}]}
  - {name: b, queues: [{}]}
  - {name: c}
""",
    )
    assert settings.shutdown_grace_ms == 1_000
    assert settings.logging == LogSettings(level="debug", format="json")
    peer = PeerSettings(
        container_id="b",
        max_frame_size=4096,
        channel_max=7,
        idle_timeout_ms=0,
        handshake_timeout_ms=1_000,
        max_message_size=0,
        incoming_window_bytes=8192,
        incoming_bytes_max=1_000_000,
        outgoing_buffer=65_536,
        bare_amqp=False,
        credit=10,
        credit_low=3,
    )
    listener = ListenerSettings(
        name="one",
        bind="*:0",
        peer=peer,
        backlog=5,
        tcp_nodelay=False,
        max_connections=2**31 - 1,
    )
    assert settings.listeners == (listener,)
    broker = settings.broker
    assert broker.addresses == (
        DeclaredAddress("a", QueueSettings("q", durable=False)),
        DeclaredAddress("b", QueueSettings("b", durable=True)),
        DeclaredAddress("c", None),
    )
    rules = broker.of_address("anything")
    assert not rules.auto_create_addresses
    assert not rules.auto_create_queues
    assert not rules.auto_delete_queues
    assert not rules.auto_delete_addresses
    assert rules.auto_delete_queues_delay == 3_600_000


def test_the_models_defaults_are_the_settings_defaults() -> None:
    listener = ListenerSection(name="amqp", bind="localhost:5672")
    peer = PeerSettings(container_id="x")
    assert listener.idle_timeout == peer.idle_timeout_ms
    assert listener.incoming_window == peer.incoming_window_bytes
    assert listener.max_message_size == peer.max_message_size
    stated = ListenerSection.model_validate({"name": "a", "bind": "*:1", "sasl": list(MECHANISMS)})
    assert stated.sasl == listener.sasl


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """brokr: {}
broker:
  data_dir: ./data
listeners:
  - name: a
    bind: nowhere
    max_frame_sise: 5
    max_frame_size: 1 MiB
    incoming_window: 64 KiB
    credit: 10
  - bind: "*:1"
    tcp_nodelay: yes
address_settings: {match: "#"}
addresses:
  - name: q
    queues: [{prioritees: 1}]
""",
    )
    assert found == [
        "0.yaml:1:1: brokr: unknown key, did you mean broker?",
        "0.yaml:3:13: broker.data_dir: not supported yet; only its default may stand here: null",
        "0.yaml:5:5: listeners[0].credit_low: must be below credit (10), is 300",
        '0.yaml:6:11: listeners[0].bind: "nowhere" is not host:port, *:port, [address]:port or unix:path',
        "0.yaml:7:5: listeners[0].max_frame_sise: unknown key, did you mean max_frame_size?",
        "0.yaml:9:22: listeners[0].incoming_window: must be at least max_frame_size (1048576), is 65536",
        "0.yaml:11:5: listeners[1].name: missing",
        '0.yaml:12:18: listeners[1].tcp_nodelay: must be true or false, is "yes"'
        " (yes, no, on, off are plain text in YAML 1.2)",
        "0.yaml:13:19: address_settings: must be a list, is a mapping",
        "0.yaml:16:15: addresses[0].queues[0].prioritees: unknown key, did you mean priorities?",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listeners: []", "listeners: must not be empty"),
        (
            "listeners: [{name: a, bind: '*:1'}, {name: a, bind: '*:2'}]",
            'listeners[1].name: "a" is given twice, first in [0]',
        ),
        (
            "listeners: [{name: a, bind: '*:1'}, {name: b, bind: '*:1'}]",
            'listeners[1].bind: "*:1" is given twice, first in [0]',
        ),
        (
            "listeners: [{name: a, bind: '*:1', sasl: [PLAIN]}]",
            "listeners[0].sasl: not supported yet; supported: [ANONYMOUS]",
        ),
        (
            "listeners: [{name: a, bind: '*:1', sasl: [PLIAN]}]",
            'listeners[0].sasl: "PLIAN" is not known, did you mean PLAIN?',
        ),
        (
            "listeners: [{name: a, bind: '*:1', sasl: ANONYMOUS}]",
            'listeners[0].sasl: must be a list, is "ANONYMOUS"',
        ),
        (
            "listeners: [{name: a, bind: '*:1', tls: {certificate: x}}]",
            "listeners[0].tls: not supported yet",
        ),
        (
            "listeners: [{name: a, bind: '*:1', drain_timeout: 2 min}]",
            'listeners[0].drain_timeout: not supported yet; only its default may stand here: "60 s"',
        ),
        (
            "listeners: [{name: a, bind: '*:1', max_frame_size: 100}]",
            "listeners[0].max_frame_size: must be at least 512 bytes, is 100",
        ),
        (
            "addresses: [{name: a, routing: [anycast, multicast]}]",
            "addresses[0].routing: anycast, multicast: not supported yet; supported: anycast",
        ),
        (
            "addresses: [{name: a, routing: anycats}]",
            'addresses[0].routing: "anycats" is not known, did you mean anycast?',
        ),
        (
            "addresses: [{name: a, queues: [{}, {}]}]",
            "addresses[0].queues: more than one queue on an address: not supported yet",
        ),
        (
            "addresses: [{name: a, queues: [{type: priority}]}]",
            "addresses[0].queues[0].type: priority: not supported yet; supported: standard",
        ),
        (
            "addresses: [{name: a}, {name: a}]",
            'addresses[1].name: "a" is given twice, first in [0]',
        ),
        (
            "address_settings: [{match: 'a.#'}]",
            'address_settings[0].match: patterns other than "#" are not supported yet',
        ),
        ("address_settings: [{match: 5}]", "address_settings[0].match: must be a pattern, is 5"),
        ("address_settings: [{}]", "address_settings[0].match: missing"),
        (
            "address_settings: [{match: '#', max_delivery_attempts: 3}]",
            "address_settings[0].max_delivery_attempts: not supported yet; only its default may stand here: 10",
        ),
        ("logging: text", 'logging: must be a mapping, is "text"'),
        ("logging: {level: warn}", 'logging.level: "warn" is not known, did you mean warning?'),
        (
            "security: {users: [{name: a}]}",
            "security.users: not supported yet; only its default may stand here: []",
        ),
    ],
)
def test_one_problem(tmp_path: Path, text: str, problem: str) -> None:
    found = problems(tmp_path, text)
    assert len(found) == 1
    assert problem in found[0]


def test_listeners_on_any_free_port_may_have_the_same_bind(tmp_path: Path) -> None:
    text = "listeners: [{name: a, bind: 'localhost:0'}, {name: b, bind: 'localhost:0'}]"
    assert len(load(tmp_path, text).listeners) == 2


def test_later_files_override_and_add(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "broker: {name: first, shutdown_grace: 1 s}\naddresses: [{name: a}]",
        "broker: {name: second}\naddresses: [{name: b}]",
    )
    assert settings.listeners[0].peer.container_id == "second"
    assert settings.shutdown_grace_ms == 1_000
    assert [one.name for one in settings.broker.addresses] == ["a", "b"]


def test_a_problem_names_the_file_it_is_in(tmp_path: Path) -> None:
    found = problems(
        tmp_path, "broker: {name: a}", "broker: {shutdown_grace: 5}\naddresses: [{nam: b}]"
    )
    assert [line.split(": ")[0] for line in found] == ["1.yaml:1:26", "1.yaml:2:13", "1.yaml:2:14"]


def test_a_folder_is_its_yaml_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "20.yaml").write_text("broker: {name: twenty}")
    (tmp_path / "10.yaml").write_text("broker: {name: ten, shutdown_grace: 2 s}")
    (tmp_path / "readme.txt").write_text("not read: [")
    settings = load_files([tmp_path], {})
    assert settings.listeners[0].peer.container_id == "twenty"
    assert settings.shutdown_grace_ms == 2_000


def test_files_that_are_not_there_are_problems(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_files([tmp_path / "none.yaml", tmp_path])
    assert str(caught.value).splitlines() == [
        f"{tmp_path}: a folder without *.yaml files",
        f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory",
    ]


SECTIONS: list[type[Section]] = [
    File,
    BrokerSection,
    ListenerSection,
    LoggingSection,
    AddressSettingsSection,
    AddressSection,
    QueueSection,
]
KEYS = sorted({key for one in SECTIONS for key in (*one.model_fields, *one.later)})
VALUES = st.recursive(
    st.sampled_from(
        ["5", "-1", "x", "true", "null", "64 KiB", "5 s", "'#'", "unlimited", "1.5", "$X", "'*:1'"]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=4).map(
            lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"
        ),
    ),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.sampled_from(sorted(File.model_fields)), VALUES), max_size=4))
def test_any_shape_is_settings_or_problems_with_places(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in entries))
    found: list[Problem] = []
    try:
        load_files([file], {})
    except ConfigError as error:
        found += error.problems
    assert all(problem.place.line for problem in found)
    assert not any("Input should" in problem.text for problem in found)
