"""Every example in the documentation is accepted by what it is an example for."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from app.cli import root as command_line
from app.outlining import explain_action
from connectors.catalog import Source, load_catalog
from evidence.chain import ChainHead
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow


def test_workflows_compile(examples: Any) -> None:
    blocks = examples("yaml", "workflow: ")
    assert len(blocks) >= 5
    catalog = load_catalog()
    for block in blocks:
        load_workflow(block.text, block.place, catalog)


def test_every_key_of_a_workflow_is_described(docs_root: Path) -> None:
    from runtime.definition.model import StepDocument, WorkflowDocument

    for page in ("workflows.md", "language.md"):
        text = (docs_root / "docs" / page).read_text(encoding="utf-8")
        for model in (WorkflowDocument, StepDocument):
            for name, field in model.model_fields.items():
                assert re.search(rf"`[^`]*\b{field.alias or name}\b[^`]*`", text), f"{page}: {name}"


def test_every_kind_of_wait_is_told(docs_root: Path) -> None:
    from runtime.engine.model.states import WaitKind

    page = (docs_root / "docs" / "concepts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z]+)` \| `[a-z_]+` \|", page, re.MULTILINE)) == {str(kind) for kind in WaitKind}


def _schema(file: Path, docs_root: Path) -> str:
    """The schema of docs/schemas that a file's first line tells an editor of."""
    first = file.read_text(encoding="utf-8").splitlines()[0]
    named = (file.parent / first.removeprefix("# yaml-language-server: $schema=")).resolve()
    assert named.is_file(), first
    assert named.parent == docs_root / "docs" / "schemas", first
    return named.name


def test_the_example_workflows_pass_the_check_with_their_policies(docs_root: Path) -> None:
    workflows = sorted((docs_root / "examples").glob("**/workflows/*.yaml"))
    assert len(workflows) >= 7
    operations = sorted((docs_root / "examples").glob("**/operations/*.yaml"))
    catalog = load_catalog([Source(file.name, file.read_text(encoding="utf-8")) for file in operations])
    for file in workflows:
        text = file.read_text(encoding="utf-8")
        assert _schema(file, docs_root) == "workflow.schema.json"
        assert load_workflow(text, str(file), catalog).name == file.stem
    for file in sorted((docs_root / "examples").glob("**/policies/*.yaml")):
        text = file.read_text(encoding="utf-8")
        assert _schema(file, docs_root) == "policy.schema.json"
        assert Definitions(catalog).compile_policy(text, str(file)).name == file.stem


def test_policies_compile(examples: Any) -> None:
    blocks = examples("yaml", "policy: ")
    assert blocks
    for block in blocks:
        Definitions(load_catalog()).compile_policy(block.text, block.place)


def test_operations_load(examples: Any) -> None:
    blocks = examples("yaml", "operations:")
    assert blocks
    for block in blocks:
        load_catalog([Source(block.place, block.text)])


def test_the_action_to_explain_is_explained(examples: Any, docs_root: Path) -> None:
    (block,) = examples("json", r'\s+"operation"')
    policy = docs_root / "examples" / "policies" / "it-operations.yaml"
    compiled = Definitions(load_catalog()).compile_policy(policy.read_text(), str(policy))
    explained = explain_action(block.text.encode(), block.place, PolicySet.of(compiled), load_catalog())
    assert explained.decision.outcome == "needs_approval"


def test_the_example_of_the_chain_comes_to_the_head_that_it_names(examples: Any) -> None:
    (block,) = examples("python", "from hashlib import sha256")
    lines = [line.encode() for line in re.findall(r"b'(\{.*?\})'", block.text)]
    head = ChainHead.of("run:0198a000-0000-7000-8000-000000000001").after(lines[:2]).after(lines[2:])
    assert head.count == 3
    assert f'"{head.hash}"' in block.text
    exec(block.text, {})


def test_the_slack_manifest_asks_for_what_is_called(examples: Any) -> None:
    from ruamel.yaml import YAML

    (block,) = examples("yaml", "display_information:")
    manifest = YAML(typ="safe").load(block.text)
    assert "chat:write" in manifest["oauth_config"]["scopes"]["bot"]
    assert manifest["settings"]["interactivity"]["request_url"].endswith("/slack/events")


def test_json_is_json(docs_root: Path) -> None:
    for file in (docs_root / "deploy").glob("*.json"):
        json.loads(file.read_text())


def test_every_command_that_is_shown_exists(pages: list[Path]) -> None:
    tree = typer.main.get_command(command_line)
    shown = 0
    for page in pages:
        for line in re.findall(r"^(?:\S+/)?counterseal (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            words = shlex.split(line, comments=True)
            _walk(tree, words, f"{page.name}: counterseal {line}")
            shown += 1
    assert shown > 30


def _walk(command: Any, words: list[str], place: str) -> None:
    rest = list(words)
    while hasattr(command, "commands"):
        assert rest, place
        assert rest[0] in command.commands, place
        command = command.commands[rest.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts}
    for word in rest:
        if re.match(r"--?[a-z]", word):
            assert word in known, f"{place}: {word}"


def test_links_lead_somewhere(pages: list[Path]) -> None:
    link = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    targets = [(page, target) for page in pages for target in link.findall(page.read_text(encoding="utf-8"))]
    broken = [f"{page.name}: {target}" for page, target in targets if not (page.parent / target).exists()]
    assert broken == []


def test_anchors_are_headings(pages: list[Path]) -> None:
    link = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
    broken = []
    for page in pages:
        for target, anchor in link.findall(page.read_text(encoding="utf-8")):
            if anchor not in _anchors(page.parent / target if target else page):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


def _anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_settings_that_are_named_exist(pages: list[Path], docs_root: Path) -> None:
    from app.settings import PREFIX, Settings
    from counterseal_agents import gate

    known = {PREFIX + name.upper() for name in Settings.model_fields} | {gate.URL, gate.TOKEN}
    named = set()
    for file in [*pages, docs_root / "deploy" / "counterseal.env"]:
        named |= set(re.findall(rf"\b{PREFIX}[A-Z0-9_]*[A-Z0-9]\b", file.read_text(encoding="utf-8")))
    assert named - known == set()
