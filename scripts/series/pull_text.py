"""A patch's message in the form that upstream's pull-request template asks for.

A message has sections (Why, What, Numbers, Accuracy, Tests, Limits, Near, Form), each begun by its
name and a colon at the start of a line, and trailers. Near lists issues and pull requests, a
sentence each on how the patch differs. What only the sender can say is a blank: FILL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from scripts.common import Failure

FILL = "FILL"
SIGN_OFF = f"Signed-off-by: {FILL} YOUR NAME <{FILL}@YOUR.ADDRESS>"
ASSISTED = f"Co-authored-by: {FILL} THE AI TOOL THAT HELPED"
_SECTIONS = ("Why", "What", "Numbers", "Accuracy", "Tests", "Limits", "Near", "Form")
_HEADING = re.compile(rf"^({'|'.join(_SECTIONS)}):[ \t]*\n?", re.MULTILINE)
_TRAILER = re.compile(r"^([A-Z][A-Za-z]*(?:-[A-Za-z]+)*): (\S.*)$")
_NUMBER = re.compile(r"#(\d+)\b")
# Relations that Upstream-Status may name to an issue, rather than to a rival.
_SETTLED = ("answers", "fixes", "closes")
# Of our own tools: upstream's history has no use for them. The sign-off is the sender's.
_OURS = ("Upstream-Status", "Kernel", "Depends", "Signed-off-by")


@dataclass
class Message:
    """A patch's message, taken apart."""

    subject: str
    sections: dict[str, str] = field(default_factory=dict)
    trailers: list[tuple[str, str]] = field(default_factory=list)
    body: str = ""

    def trailer(self, name: str) -> str:
        """A trailer's value, "" without one."""
        return next((value for key, value in self.trailers if key == name), "")

    def depends(self) -> list[int]:
        """The patches that `Depends: 0001, 0002` names."""
        return [int(number) for number in re.findall(r"\d+", self.trailer("Depends"))]

    def near(self) -> dict[int, str]:
        """The issues and pull requests of Upstream-Status, then Near, each with its relation."""
        found: dict[int, str] = {}
        relation = "related"
        for piece in re.split(r"[;(),]", self.trailer("Upstream-Status")):
            words, _, _ = piece.partition("#")
            relation = words.strip(" :") or relation
            for number in _NUMBER.findall(piece):
                found.setdefault(int(number), relation)
        for number in _NUMBER.findall(self.sections.get("Near", "")):
            found.setdefault(int(number), "related")
        return found

    def said_of(self, number: int) -> list[str]:
        """The sentences of Near, else of the body, that name an issue or pull request."""
        wanted = re.compile(rf"#{number}\b")
        near = self.sections.get("Near", "")
        said = near if wanted.search(near) else self.body
        text = "\n".join(line for line in said.splitlines() if not line.startswith("|"))
        sentences = re.split(r"(?<=[.;:])\s+(?=[A-Z#`-])|\n\s*\n|\n(?=\s*- )", text)
        return [" ".join(one.split()).lstrip("- ") for one in sentences if wanted.search(one)]


def parse(message: str) -> Message:
    """Take a message apart. Text before the first section counts as its Why."""
    subject, _, rest = message.partition("\n\n")
    lines = rest.rstrip().splitlines()
    trailers: list[tuple[str, str]] = []
    while lines and (found := _TRAILER.match(lines[-1])):
        trailers.insert(0, (found[1], found[2]))
        lines.pop()
    body = "\n".join(lines).strip()
    pieces = _HEADING.split(body)
    sections = {"Why": pieces[0].strip()} if pieces[0].strip() else {}
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        sections[name] = "\n\n".join(filter(None, [sections.get(name), text.strip()]))
    return Message(" ".join(subject.split()), sections, trailers, body)


def commit_message(message: str) -> str:
    """The message of the commit to send: our tools' trailers gone, sign-off and tool left blank."""
    parsed = parse(message)
    kept = [f"{key}: {value}" for key, value in parsed.trailers if key not in _OURS]
    trailers = "\n".join([*kept, ASSISTED, SIGN_OFF])
    return f"{parsed.subject}\n\n{parsed.body}\n\n{trailers}\n"


@dataclass(frozen=True)
class Facts:
    """What the text says besides the message: measured or found by the tools."""

    commands: list[str]
    results: list[str]
    builds_on: list[str]
    release: str
    documents: list[str]
    changes_code: bool


def pull_request(message: str, template: str, facts: Facts) -> str:
    """The text by the template: its headings in its order, its checklist, nothing below it.

    Raises Failure if the template has a heading that is not known here.
    """
    parsed = parse(message)
    writers = {"Purpose": _purpose, "Test Plan": _test_plan, "Test Result": _test_result}
    headings = re.findall(r"^## (.+?)\s*$", template, re.MULTILINE)
    unknown = set(headings) ^ writers.keys()
    if unknown:
        raise Failure(
            f"the release's pull-request template has other headings ({', '.join(headings)}): "
            f"teach scripts/series/pull_text.py {', '.join(sorted(unknown))}"
        )
    parts = [f"## {name}\n\n{unwrapped(writers[name](parsed, facts))}" for name in headings]
    checklist = [line for line in template.splitlines() if line.startswith("- [ ]")]
    parts.append("---\n\n" + "\n".join(checklist))
    return "\n\n".join(parts) + "\n"


def _purpose(parsed: Message, facts: Facts) -> str:
    parts = [parsed.sections.get("Why", ""), parsed.sections.get("What", "")]
    if facts.builds_on:
        parts.append(
            "Builds on, each a pull request of its own, whose commits come first in this branch:\n"
            + "\n".join(f"- {subject} (#{FILL})" for subject in facts.builds_on)
        )
    if parsed.sections.get("Form"):
        parts.append(parsed.sections["Form"])
    parts.append(f"Made on and tested against v{facts.release}.")
    parts.append(f"### Why this is not a duplicate\n\n{_near(parsed)}")
    if parsed.sections.get("Limits"):
        parts.append(f"### Limits\n\n{parsed.sections['Limits']}")
    if facts.documents:
        parts.append("### Documentation\n\n" + "\n".join(f"- {path}" for path in facts.documents))
    parts.append(
        "### AI assistance\n\n"
        "AI tools were used in writing this change, its tests and this text.\n"
        f"- Which ones, and for what: {FILL}\n"
        f"- {FILL}: the submitter has read every changed line, has run the tests below, and can "
        "defend the change end to end"
    )
    return "\n\n".join(part for part in parts if part)


def _near(parsed: Message) -> str:
    lines = []
    for number, relation in parsed.near().items():
        words = " ".join(parsed.said_of(number))
        if not words:
            words = "settled by this" if relation in _SETTLED else f"{FILL}: how this differs"
        lines.append(f"- #{number} ({relation}): {words}")
    if not lines:
        lines.append(f"- {FILL}: nothing near is known")
    lines.append(
        f"- {FILL}: state of these, and what else is open, on the day of sending "
        "(`gh pr list --repo vllm-project/vllm --state open --search ...`)"
    )
    return "\n".join(lines)


def _test_plan(parsed: Message, facts: Facts) -> str:
    parts = [parsed.sections.get("Tests", "")]
    if facts.commands:
        parts.append("```bash\n" + "\n".join(facts.commands) + "\n```")
    return "\n\n".join(part for part in parts if part) or f"{FILL}: no tests are carried"


def _test_result(parsed: Message, facts: Facts) -> str:
    parts = ["\n".join(f"- {result}" for result in facts.results)]
    parts.append(f"### Figures\n\n{parsed.sections.get('Numbers', f'{FILL}: none')}")
    accuracy = parsed.sections.get("Accuracy", "")
    if not accuracy and facts.changes_code:
        accuracy = f"{FILL}: model evaluation, or why outputs can't change"
    if accuracy:
        parts.append(f"### Accuracy\n\n{accuracy}")
    return "\n\n".join(parts)


def unwrapped(text: str) -> str:
    """One line for each paragraph and list item: GitHub shows line ends in a description.

    Tables, fenced and indented code keep theirs.
    """
    lines: list[str] = []
    fenced = open_paragraph = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        code = fence or fenced or (line.startswith("    ") and not open_paragraph)
        if code or not line.strip() or re.match(r"\s*(?:\||#+ |---)", line):
            lines.append(line)
            open_paragraph = False
        elif open_paragraph and not re.match(r"\s*(?:[-*]|\d+\.) ", line):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
            open_paragraph = True
    return "\n".join(lines)


def blanks(text: str) -> list[str]:
    """The lines that the sender still has to fill."""
    return [line.strip() for line in text.splitlines() if re.search(rf"\b{FILL}\b", line)]
