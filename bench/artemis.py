"""ActiveMQ Artemis out of its Maven distribution, as a broker to compare with. Needs java and mvn."""

import shutil
import subprocess
import tarfile
from pathlib import Path

from bench.client import cache_folder

VERSION = "2.40.0"
ARTIFACT = f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"

# As shipped, but a queue that nobody described is a queue, not a topic; and it may fill without paging to disk.
CATCH_ALL = '<address-setting match="#">'
QUEUES = """
            <default-queue-routing-type>ANYCAST</default-queue-routing-type>
            <default-address-routing-type>ANYCAST</default-address-routing-type>
"""

CREATE = (
    "--user admin --password admin --allow-anonymous --silent --no-web --no-autotune"
    " --no-amqp-acceptor --no-hornetq-acceptor --no-mqtt-acceptor --no-stomp-acceptor"
)


def distribution() -> Path:
    """The unpacked distribution, fetched once."""
    home = cache_folder() / f"apache-artemis-{VERSION}"
    if home.is_dir():
        return home
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise FileNotFoundError("artemis: java and mvn are needed")
    fetched = cache_folder() / "fetched"
    copy = ["-q", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={fetched}"]
    subprocess.run([maven, *copy], check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(next(fetched.glob(f"apache-artemis-{VERSION}*.tar.gz"))) as archive:
        archive.extractall(cache_folder(), filter="data")
    shutil.rmtree(fetched)
    return home


def command(port: int, folder: Path) -> list[str]:
    """Create an instance in `folder` that listens at `port`; the command line that runs it."""
    instance = folder / "instance"
    create = [*CREATE.split(), "--host", "127.0.0.1", "--default-port", str(port)]
    subprocess.run(
        [str(distribution() / "bin" / "artemis"), "create", str(instance), *create],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    settings = instance / "etc" / "broker.xml"
    text = settings.read_text()
    assert CATCH_ALL in text
    settings.write_text(text.replace(CATCH_ALL, CATCH_ALL + QUEUES))
    return [str(instance / "bin" / "artemis"), "run"]
