"""What a broker without a file is."""

import subprocess
import sys

from amqpbroker.config.defaults import default_settings


def test_one_listener_on_this_machine_only() -> None:
    settings = default_settings()
    assert [one.bind for one in settings.listeners] == ["localhost:5672"]
    assert settings.listeners[0].peer.container_id
    assert not settings.broker.addresses


def test_the_configuration_machinery_is_not_imported_for_it() -> None:
    program = (
        "import sys; from amqpbroker.config.defaults import default_settings; default_settings();"
        "print(sorted({'pydantic', 'yaml', 'proton', 'amqpbroker.config.load'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
