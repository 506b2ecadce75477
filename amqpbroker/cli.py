"""The command line: `amqpbroker serve`, `amqpbroker config check`, `amqpbroker --version`.

Imports are inside the verbs: a check that runs every ten seconds must not pay for what `serve` needs.
Exit codes: 0 done, 1 a port is taken or another failure that the operator can mend, 2 wrong use or configuration,
70 the broker's own mistake.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import PathFinder

from amqpbroker import __version__
from amqpbroker.base.twins import PURE_WANTED

TYPE_CHECKING = False  # Type checkers know the name; typing itself costs 5 ms of a start.
if TYPE_CHECKING:
    from amqpbroker.runtime.settings import ServeSettings

EXIT_OK = 0
EXIT_CONFIG = 2  # argparse's own for wrong use, too.

HELP_WIDTH = 80

TWINS = {"driver": "amqp._driver", "frames": "amqp._frames", "sections": "base._sections"}

# importlib.metadata would know, but costs 47 ms of a 60 ms budget, and pathlib another 15 ms.
PROTON_INFO = re.compile(r"python_qpid_proton-(.+)\.dist-info")


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line; returns the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.version:
        print(version_text())
        return EXIT_OK
    if options.verb == "serve":
        return serve(options.config)
    if options.verb == "config" and options.config_verb == "check":
        return check(options.config)
    parser.print_help(sys.stderr)
    return EXIT_CONFIG


def make_parser() -> argparse.ArgumentParser:
    """The verbs and their options."""
    parser = argparse.ArgumentParser(
        prog="amqpbroker", description="An AMQP 1.0 broker.", formatter_class=_help
    )
    parser.add_argument("--version", action="store_true", help="versions, and which driver runs")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    serve_parser = verbs.add_parser(
        "serve", help="run a broker until SIGTERM or Ctrl-C", formatter_class=_help
    )
    add_config(serve_parser, required=False)
    config_parser = verbs.add_parser(
        "config", help="look at configuration files", formatter_class=_help
    )
    config_verbs = config_parser.add_subparsers(dest="config_verb", metavar="VERB", required=True)
    check_parser = config_verbs.add_parser(
        "check", help="name all that is wrong with the files", formatter_class=_help
    )
    add_config(check_parser, required=True)
    return parser


def _help(prog: str) -> argparse.HelpFormatter:
    """Help of a fixed width: argparse asks for the terminal's at each option, by shutil with all compressors, 5 ms."""
    return argparse.HelpFormatter(prog, width=HELP_WIDTH)


def add_config(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The option -c, which may be given more than once."""
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        required=required,
        metavar="FILE",
        help="configuration file, or a folder of *.yaml files; several are merged in order",
    )


def serve(files: Sequence[str]) -> int:
    """Run a broker with the merged settings of `files`, or the built-in ones without any."""
    settings = load(files) if files else load_defaults()
    if settings is None:
        return EXIT_CONFIG
    from amqpbroker.ops import log
    from amqpbroker.runtime import loop

    log.set_up(settings.logging)
    if not files:
        log.log_note("settings_stock", {"says": "no passwords, this machine only, all in memory"})
    pure = pure_twins()
    if pure and not PURE_WANTED:
        log.log_note("driver_pure", {"pure": ",".join(pure)})
    return loop.serve(settings)


def check(files: Sequence[str]) -> int:
    """Say what is wrong with `files`, or that nothing is."""
    if load(files) is None:
        return EXIT_CONFIG
    print(f"{', '.join(files)}: ok")
    return EXIT_OK


def load_defaults() -> "ServeSettings":
    """The built-in settings; the configuration's machinery stays unimported."""
    from amqpbroker.config.defaults import default_settings

    return default_settings()


def load(files: Sequence[str]) -> "ServeSettings | None":
    """The settings of `files`; None after all their problems were printed, one a line."""
    from amqpbroker.config.load import ConfigError, load_files

    try:
        return load_files(files)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None


def version_text() -> str:
    """Broker, Python and Proton, and for each twin whether it is compiled or pure."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    kinds = ", ".join(f"{name} {twin_kind(module)}" for name, module in TWINS.items())
    return f"amqpbroker {__version__} (Python {python}, Proton {proton_version()}; {kinds})"


def twin_kind(module: str) -> str:
    """Whether this twin is wanted and loads: without Proton's 100 ms, `serve` would run the same."""
    if PURE_WANTED:
        return "pure"
    try:
        import_module(f"amqpbroker.{module}")
    except ImportError:  # Not built, or for another Python.
        return "pure"
    return "compiled"


def pure_twins() -> list[str]:
    """Which of the modules that run now are not compiled; they are loaded if they were not."""
    from amqpbroker.amqp import driver, frames
    from amqpbroker.base import sections

    compiled = {
        "driver": driver.COMPILED,
        "frames": frames.COMPILED,
        "sections": sections.COMPILED,
    }
    return [name for name, is_compiled in compiled.items() if not is_compiled]


def proton_version() -> str:
    """The version of Proton's Python binding, or `missing`. Imports nothing of it."""
    found = PathFinder.find_spec("proton")
    if found is None or found.origin is None:
        return "missing"
    installed = os.listdir(os.path.dirname(os.path.dirname(found.origin)))  # noqa: PTH120, PTH208
    matches = (PROTON_INFO.fullmatch(name) for name in installed)
    return next((match[1] for match in matches if match), "unknown")


if __name__ == "__main__":
    sys.exit(main())
