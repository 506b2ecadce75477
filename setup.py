"""Builds the compiled twins; whatever fails, the pure modules beside them do the same work more slowly.

A twin is `_name.pyx` beside `name.py`. With AMQPBROKER_REQUIRE_COMPILED=1 (CI sets it) a twin that does not build
is an error instead, so that a mistake in one is not taken for a machine without a compiler. None is built with
AMQPBROKER_PURE_PYTHON=1.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

PURE = os.environ.get("AMQPBROKER_PURE_PYTHON") == "1"
REQUIRED = os.environ.get("AMQPBROKER_REQUIRE_COMPILED") == "1" and not PURE


def twins() -> list[Extension]:
    """Each twin that is there and that Cython turns into C."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        if REQUIRED:
            raise
        return []
    made: list[Extension] = []
    for source in sorted(Path("amqpbroker").rglob("_*.pyx")):
        name = ".".join(source.with_suffix("").parts)
        try:
            made += cythonize([Extension(name, [str(source)])], language_level=3)
        except CompileError:
            if REQUIRED:
                raise
            print(f"{source}: not compiled; the pure module stays", file=sys.stderr)
    for extension in made:
        extension.optional = not REQUIRED  # Only here: cythonize makes new extensions without it.
    return made


setup(
    ext_modules=[] if PURE else twins(),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
