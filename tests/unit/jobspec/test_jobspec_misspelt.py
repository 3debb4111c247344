"""A misspelt key of a jobspec: what was meant is said, in a warning or in the refusal."""

import pytest

from rainbow.errors import JobspecError
from rainbow.jobspec import parse_jobspec
from rainbow.jobspec.dialects.common import WHO_PAYS

WARNED = [
    (
        "resources: {work: {type: node, replica: 4}}",
        "unknown key /resources/work/replica ignored; did you mean replicas?",
    ),
    ("resources: {work: {type: node, colour: 4}}", "unknown key /resources/work/colour ignored"),
    (
        "{resources: {work: {type: node}}, attributes: {system: {duraton: 60}}}",
        "unknown key /attributes/system/duraton ignored; did you mean duration?",
    ),
    ("{resources: {work: {type: node}}, taks: []}", "unknown key /taks ignored; did you mean tasks?"),
    (
        "{task: {command: [x], resources: {io: {type: shm}}}, resource: [1]}",
        "unknown key /resource ignored; did you mean resources?",
    ),
    (
        "{version: 1, resources: [{type: slot, count: 1, label: a, with: [{type: core, count: 1}]}], attributes: {},"
        " tasks: [{command: [x], slot: a, count: {per_slot: 1}, attributes: {enviroment: {}}}]}",
        "unknown key /tasks/0/attributes/enviroment ignored; did you mean environment?",
    ),
    (
        "{version: 99, resources: [{type: slot, count: 1, label: a, with: [{type: core, count: 1}]}], attributes: {},"
        " tasks: [{command: [x], slot: a, count: {per_slot: 1}}]}",
        "/version 99 is unknown; the jobspec is read as version 1",
    ),
    (
        "{resources: {work: {type: node}}, attributes: {system: {output: a}}}",
        "/attributes/system/output: only the executors local and slurm read this",
    ),
    (
        "{resources: {work: {type: node}}, attributes: {site: {slurm: {account: a, ntasks: 1, partition: b}}}}",
        "/attributes/site/slurm (partition): only clusters of kind slurm read this",
    ),
    (
        "{resources: {work: {type: node}}, attributes: {site: {slurm: {account: a, qos: b}}}}",
        f"/attributes/site/slurm (account, qos): {WHO_PAYS}",
    ),
    (
        "{resources: {work: {type: node}}, attributes: {system: {account: a}}}",
        f"/attributes/system/account: {WHO_PAYS}",
    ),
]
REFUSED = [
    ("resource: {work: {type: node}}", "/resource", "the jobspec has no key resource; did you mean resources?"),
    ("version: 1\nresorces: [{type: slot}]", "/resorces", "the jobspec has no key resorces; did you mean resources?"),
    (
        "{version: 1, resources: [{type: slot, count: 1, lable: a}], tasks: [], attributes: {}}",
        "/resources/0/lable",
        "unknown key lable in resources[0]; did you mean label? valid keys: type,",
    ),
]


FAULTY = [
    ("", "", "the document is empty"),
    ("tasks: [{command: [x]}]", "", "missing key in the jobspec: resources"),
    (
        "{resources: {r: {type: core}}, tasks: [{name: a, resources: r, command: [x], depends_on: [a]}]}",
        "/tasks",
        "a depends on itself",
    ),
    (
        "{resources: {r: {type: core}}, tasks: [{resources: r, command: [sleep, 5]}]}",
        "/tasks/0/command/1",
        "command[1] must be string, got 5; write it in quotes",
    ),
    (
        "{resources: {r: {type: core}}, tasks: [{resources: r, command: ['']}]}",
        "/tasks/0/command",
        "a command begins with the name of a program, got empty text",
    ),
    (
        "{resources: {r: {type: core}}, attributes: {system: {environment: {'': x}}}}",
        "/attributes/system/environment/",
        "the name of a variable is empty",
    ),
]


@pytest.mark.parametrize(("text", "pointer", "said"), FAULTY)
def test_refusal_says_what_is_wrong_in_words_of_the_jobspec(text, pointer, said):
    with pytest.raises(JobspecError) as caught:
        parse_jobspec(text)
    assert (caught.value.message, caught.value.pointer) == (said, pointer)


@pytest.mark.parametrize(("text", "warning"), WARNED)
def test_warning_says_which_key_was_meant(text, warning):
    assert warning in parse_jobspec(text).warnings


@pytest.mark.parametrize(("text", "pointer", "said"), REFUSED)
def test_refusal_says_which_key_was_meant_and_not_those_of_another_dialect(text, pointer, said):
    with pytest.raises(JobspecError) as caught:
        parse_jobspec(text)
    assert caught.value.pointer == pointer
    assert str(caught.value).startswith(said)


def test_of_very_many_unknown_keys_only_those_that_are_told_are_compared(monkeypatch):
    compared = []
    monkeypatch.setattr("rainbow.text.meant", lambda *words: compared.append(words) or "")
    many = {f"key{k}" * 20: k for k in range(20_000)}
    request = parse_jobspec({"resources": {"work": {"type": "node"}}, **many})
    assert "... and 19950 more of this kind" in request.warnings
    assert len(compared) == 50
