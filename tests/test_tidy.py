"""The house rules that no linter knows."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqpbroker.ops.log import EVENTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "amqpbroker"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [*MODULES, *sorted(ROOT.glob("tests/**/*.py")), *sorted(ROOT.glob("bench/**/*.py"))]

WITHOUT_MIRROR = {
    "__init__.py": "the map",
    "__main__.py": "one line; tests/test_cli.py starts the program by it",
    "amqp/attachment.py": "values; tests/amqp/test_producers.py and test_consumers.py go through all",
    "amqp/codes.py": "names",
    "amqp/settings.py": "values; tests/config/test_load.py fills every field",
    "base/errors.py": "names",
    "base/ids.py": "types",
    "base/twins.py": "one flag; test_cli.py, base/test_sections.py and amqp/test_frames.py set it",
    "config/model.py": "a table; tests/config/test_load.py goes through every key",
    "engine/commands.py": "values",
    "engine/effects.py": "values",
    "engine/records.py": "values",
    "engine/settings.py": "values; tests/config/test_load.py fills every field",
    "runtime/settings.py": "values; tests/config/test_load.py fills every field",
}
"""Modules without a test file of their own, each with the reason."""

FUNCTION_LINES_MAX = 70
LONG_FUNCTIONS: dict[str, str] = {}
"""file:name of functions above the bound, each with the reason."""

FORBIDDEN_WORDS = re.compile(r"(Manager|Helper|Util|Utils|Handler|Impl)(?=[A-Z]|$)")
FORBIDDEN_ALLOWED = {
    "MessagingHandler": "Proton's word for what its users write",
}

MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|tmp|home|Users)/\w+")
MACHINE_PATHS_ALLOWED: dict[str, str] = {}
"""Files that may name such a path, each with the reason."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def tracked() -> list[Path]:
    """Text files of the repository; all files where it is none."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git repository")
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_module_has_a_test_file_of_its_own(module: Path) -> None:
    inside = module.relative_to(PACKAGE)
    mirror = ROOT / "tests" / inside.parent / f"test_{inside.name.removeprefix('_')}"
    excused = inside.as_posix() in WITHOUT_MIRROR or inside.name == "__init__.py"
    assert mirror.exists() != excused, (
        f"{mirror}: missing, or listed in WITHOUT_MIRROR though it is there"
    )


def test_every_excuse_is_for_a_module_that_exists() -> None:
    assert all((PACKAGE / name).exists() for name in WITHOUT_MIRROR)


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_module_says_what_it_is_for(module: Path) -> None:
    assert ast.get_docstring(parsed(module))


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_functions_can_be_read_at_a_glance(module: Path) -> None:
    for function in functions(parsed(module)):
        assert function.end_lineno is not None
        lines = function.end_lineno - function.lineno + 1
        key = f"{name_of(module)}:{function.name}"
        assert lines <= FUNCTION_LINES_MAX or key in LONG_FUNCTIONS, f"{key} has {lines} lines"


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_classes_have_better_nouns(source: Path) -> None:
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ClassDef) and node.name not in FORBIDDEN_ALLOWED:
            assert not FORBIDDEN_WORDS.search(node.name), f"{node.name} needs a better noun"


def test_every_event_that_is_said_is_in_the_table() -> None:
    said = {
        argument.value
        for module in MODULES
        for call in ast.walk(parsed(module))
        if isinstance(call, ast.Call) and called(call) in ("log_note", "Note", "note", "_note")
        for argument in call.args[:1]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    assert said <= EVENTS.keys()
    assert EVENTS.keys() <= said, "a name that nothing says is no promise to keep"


def called(call: ast.Call) -> str:
    target = call.func
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def make_targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    helped = set(re.findall(r"^([a-z]+):.*## \S", makefile, flags=re.MULTILINE))
    assert helped == make_targets()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == helped


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_commands_in_the_pages_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    assert set(re.findall(r"(?:\$ |`)make ([a-z]+)", text)) <= make_targets()
    verbs = {"serve", "config check", "--version"}
    used = re.findall(r"(?:bin/|`)amqpbroker (--\w+|\w+(?: check)?)", text)
    assert set(used) <= verbs


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=name_of
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_list_of_rules_is_what_the_tests_say() -> None:
    script = ROOT / "scripts" / "rules.py"
    told = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    for path in tracked():
        if (
            path.suffix in (".lock", ".png", ".so", ".jar")
            or name_of(path) in MACHINE_PATHS_ALLOWED
        ):
            continue
        found = MACHINE_PATHS.findall(path.read_text(errors="replace"))
        assert not found, f"{name_of(path)}: {found}"


def test_lock_files_name_no_registry() -> None:
    for path in ROOT.glob("*.lock"):
        assert "://" not in path.read_text()


def test_pinned_packages_are_those_that_are_asked_for() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = (ROOT / "requirements.lock").read_text()
    pinned = {name.lower() for name in re.findall(r"^([\w.-]+)==", locked, flags=re.MULTILINE)}
    names = {re.split(r"[<>=!~; ]", one)[0].lower() for one in wanted}
    assert names <= pinned
