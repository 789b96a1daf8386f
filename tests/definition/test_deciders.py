"""Questions that nobody can decide: each is found wherever it stands in a workflow, and told at its own line."""

from __future__ import annotations

from runtime.definition import deciders

GROUPS = {
    "leads": frozenset({"ann", "bob"}),
    "duty": frozenset({"dan"}),
    "many": frozenset("abcdef"),
    "five": frozenset("abcde"),
}
EVERYWHERE = """workflow: flow
version: 2
steps:
  - if: "true"
    then:
      - {id: a, approve: {summary: s, approvers: {group: no-1}}}
    else:
      - id: b
        task:
          title: t
          form: {type: object}
          assign:
            group: no-2
  - foreach: "${{ trigger.many }}"
    steps:
      - while: "false"
        steps:
          - id: c
            approve:
              summary: s
              approvers:
                - {group: leads}
                - {group: no-3}
              escalate: {after: PT1H, to: {group: duty}}
  - id: d
    do: probe.effect.apply
    on_failure:
      - {id: e, approve: {summary: s, approvers: {group: no-4}}}
    on_timeout:
      - id: f
        wait: {signal: s}
        timeout: PT1H
        on_timeout:
          escalate: no-5
    on_rejected:
      - {id: g, task: {title: t, form: {type: object}, assign: {group: no-6}}}
  - id: h
    agent:
      model: m
      instructions: i
      input: j
      tools:
        - slack.message.post
        - ask:
            name: n
            title: t
            form: {type: object}
            assign: {group: no-7}
  - id: i
    approve:
      summary: s
      approvers: {group: duty}
      quorum: 2
"""


def test_a_question_is_found_wherever_it_stands() -> None:
    found = deciders.of_workflow(EVERYWHERE, "f.yaml", GROUPS)
    nobody = "workflow flow version 2: the directory has nobody in a group 'no-{}', so nobody could decide."
    told = [(one.file, one.line, one.column, one.message) for one in found.problems]
    assert told == [
        ("f.yaml", 6, 39, nobody.format(1)),
        ("f.yaml", 13, 13, nobody.format(2)),
        ("f.yaml", 21, 15, nobody.format(3)),
        ("f.yaml", 28, 39, nobody.format(4)),
        ("f.yaml", 34, 11, nobody.format(5)),
        ("f.yaml", 36, 65, nobody.format(6)),
        ("f.yaml", 48, 22, nobody.format(7)),
        ("f.yaml", 52, 7, "workflow flow version 2: it asks for 2 of the group 'duty', which has 1."),
    ]
    assert found.warnings == []


def test_without_a_directory_the_first_question_says_that_nothing_was_checked() -> None:
    remedy = "Publish the directory first: `counterseal directory publish FILE`."
    words = f"the tenant has no directory yet, so whether anybody can decide was not checked. {remedy}"
    found = deciders.of_workflow(EVERYWHERE, "f.yaml", None)
    assert (found.problems, found.warnings) == ([], [f"f.yaml:6:17: {words}"])
    nothing = EVERYWHERE[: EVERYWHERE.index("  - if")] + "  - {wait: {for: PT1H}}\n"
    assert deciders.of_workflow(nothing, "f.yaml", None) == deciders.Findings([], [])


def test_a_task_is_for_any_member_and_an_escalation_stands_where_it_is_written() -> None:
    text = """workflow: flow
version: 2
steps:
  - {id: a, task: {title: t, form: {type: object}, assign: {group: duty}}}
  - id: b
    approve:
      summary: s
      approvers: {group: leads}
      escalate: {after: PT1H, to: {group: no-1}}
  - {id: c, approve: {summary: s, approvers: {group: duty}}}
  - {id: d, wait: {signal: s}, timeout: PT1H, on_timeout: {escalate: duty}}
"""
    found = deciders.of_workflow(text, "f.yaml", GROUPS)
    assert [(one.line, one.column) for one in found.problems] == [(8, 7)]
    assert found.problems[0].message.startswith("workflow flow version 2: its escalation: the directory has nobody in")
    alone = "workflow flow version 2: nobody could decide what dan requested, for want of others."
    assert [one.partition(": ")[::2] for one in found.warnings] == [
        ("f.yaml:10:35", f"{alone} Put more people into the groups."),
        ("f.yaml:11:60", f"{alone} Put more people into the groups."),
    ]


def test_whoever_could_not_be_decided_about_is_named_up_to_five() -> None:
    text = "policy: asks\nversion: 3\nrules:\n" + "".join(
        f"  - {{id: {name}, match: {{connector: probe}}, outcome: {outcome}, {terms}}}\n"
        for name, outcome, terms in (
            ("five", "needs_approval", "approvers: [{group: five, of: 5}]"),
            ("six", "needs_approval", "approvers: [{group: many, of: 6}]"),
            ("enough", "needs_approval", "approvers: [{group: many, of: 5}]"),
            ("free", "needs_approval", "approvers: [{group: many, of: 6}], allow: [requester]"),
            ("other", "allow", "when: 'true', otherwise: needs_approval, approvers: [{group: duty}]"),
            ("doubt", "allow", "in_doubt: {approvers: [{group: duty}]}"),
        )
    )
    found = deciders.of_policy(text, "p.yaml", GROUPS)
    said = "policy asks version 3, rule {}: nobody could decide what {} requested, for want of others."
    rest = "Put more people into the groups."
    assert [one.partition(": ")[2] for one in found.warnings] == [
        f"{said.format('five', 'a, b, c, d, e')} {rest}",
        f"{said.format('six', 'a, b, c, d, e and others')} {rest}",
        f"{said.format('other', 'dan')} {rest}",
    ]
    assert [one.split(":")[1] for one in found.warnings] == ["4", "5", "8"]
    assert found.problems == []
