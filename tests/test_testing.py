"""The broker for test suites, by the names that its users know."""

import subprocess
import sys

import pytest

import amqpbroker
from amqpbroker import testing
from amqpbroker.runtime.thread import BrokerThread


def test_it_is_reachable_by_both_names() -> None:
    assert amqpbroker.BrokerThread is BrokerThread
    assert testing.BrokerThread is BrokerThread


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        amqpbroker.no_such_name  # noqa: B018


def test_the_package_alone_does_not_load_the_broker() -> None:
    code = "import sys, amqpbroker; print('proton' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env={"PYTHONPATH": "."})
    assert said == "False\n"
