"""One connection: bytes in, commands out; effects in, bytes out. Proton lives here, and no socket does.

Reading order: `peer.py` (a connection's life), `sasl.py` (before AMQP), `frames.py` and `tap.py` (every frame before
Proton sees it), `driver/` (Proton itself), `connection.py` and `session.py` (what frames mean), `incoming.py` and
`outgoing.py` (links), `switchboard.py` (all peers, and the engine behind them). docs/seams.md has the picture.
"""
