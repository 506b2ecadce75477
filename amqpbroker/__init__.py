"""amqpbroker: an AMQP 1.0 broker on Qpid Proton.

The map, in reading order. Imports go downwards only (`make check` proves it):

    cli        the command line; the only module that knows all packages
    config     YAML to validated models to the frozen settings of each package
    runtime    the loop, sockets, timers, the only clock; carries out what the engine decides
    amqp       bytes of one connection to commands, effects to bytes; Proton lives here
    store      keeps records of durable messages
    ops        what operators see: the log
    engine     the broker itself: pure and synchronous; commands and `now` in, effects out
    base       ids, units, error values, message sections as bytes

`amqp`, `store` and `ops` do not import each other. What the layers say to each other is in docs/seams.md;
a message's way is `amqp/peer.py`, `engine/broker.py`, `engine/queue.py` and back.
"""

TYPE_CHECKING = False  # Type checkers know the name; typing itself costs 5 ms of a start.
if TYPE_CHECKING:
    from amqpbroker.runtime.thread import BrokerThread

__all__ = ["BrokerThread", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """BrokerThread on first use: who imports the package for its version must not load the broker."""
    if name == "BrokerThread":
        from amqpbroker.runtime.thread import BrokerThread

        return BrokerThread
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
