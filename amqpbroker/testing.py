"""For test suites of programs that talk AMQP: a whole broker inside the test's own process.

from amqpbroker.testing import BrokerThread

with BrokerThread() as broker:
    connection = BlockingConnection(broker.url)
"""

from amqpbroker.runtime.thread import BrokerThread

__all__ = ["BrokerThread"]
