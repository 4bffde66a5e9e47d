"""Writes run folders with an events.jsonl each: ordinary, hostile, large, killed, empty. Standard library only."""

import json
import sys
from pathlib import Path

HOSTILE = [
    "nul \0, bell \x07, escape \x1b[31mred\x1b[0m, delete \x7f, next line \x85",
    "]]> ]]]]>> <![CDATA[ ]]" + "]]>" * 200,
    '<a href="x">&amp;&nbsp;&#0;</a> <!-- --> <?x?>',
    "\ufffe\uffff\ufdd0",
    "x" * (1 << 20),
    "line\nbreaks\r\nof\rall\tkinds\n\n",
    "emoji \U0001f980 \u202ereversed\u2028separator",
    "::error::x\n::set-output name=a::b ##[add-path]x",
]


def at(second):
    return f"2026-11-21T{10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"


def started(name, second=0):
    run = dict(id=name, started=at(second), harness="0.1.0", arch="mix64", provider="process", host="Linux 6.12 mix64",
               sources={"kubernetes": "module"}, seed=1, command=f"cargo xtask ci --seed 1")
    return dict(event="run-started", at=at(second), run=run)


def case(name, outcome, text="seen", second=5):
    ends = {
        "passed": {},
        "failed": dict(message=text, evidence=[text, text]),
        "expected-failure": dict(message=text, issue=text),
        "unexpected-pass": dict(issue=text),
        "skipped": dict(need=text),
        "errored": dict(phase="request", message=text),
        "timed-out": dict(what=text),
    }
    return dict(event="case-finished", at=at(second), case=name, check=name.split("[")[0], profile="default", level="must",
                requirement=f"It must hold: {text}", source=text, outcome=dict(outcome=outcome, **ends[outcome]),
                seconds=0.25, counters={"events": 3}, repeat=f"cargo xtask ci --check {name[:50]}")


def phase(name, outcome="passed", **more):
    return dict(event="phase-finished", at=at(9), phase=name, outcome=dict(outcome=outcome, **more), seconds=1.5)


def planned(number):
    return dict(event="suite-planned", at=at(3), cases=number, seed=1)


def finished(exit):
    return dict(event="run-finished", at=at(90), exit=exit, seconds=90.5)


def write(folder, name, events):
    run = folder / name
    run.mkdir(parents=True)
    lines = [json.dumps(event, ensure_ascii=False) for event in events]
    (run / "events.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


def main(folder):
    outcomes = ["passed", "failed", "expected-failure", "unexpected-pass", "skipped", "errored", "timed-out"]
    ordinary = [case(f"watch.{outcome}", outcome) for outcome in outcomes]
    whole = [started("ordinary"), phase("build"), phase("boot"), planned(len(ordinary)), *ordinary, phase("suite")]
    write(folder, "ordinary", [*whole, finished("conformance")])
    again = [started("again", 60), planned(2), case("watch.errored", "passed"), case("watch.failed", "passed")]
    write(folder, "again", [*again, finished("ok")])
    write(folder, "killed", [*whole[:6], dict(event="case-started", at=at(6), case="watch.never-ended")])
    write(folder, "unbuilt", [started("unbuilt"), phase("build", "errored", phase="build", message="no such file"), finished("build")])
    for number, text in enumerate(HOSTILE):
        cases = [case(f"watch.{outcome} {text}", outcome, text) for outcome in outcomes]
        write(folder, f"hostile-{number}", [started(f"hostile-{number}"), planned(len(cases)), *cases, finished("conformance")])
    many = [case(f"storage.n{n:05}", outcomes[n % len(outcomes)], "long text " * 150) for n in range(10_000)]
    write(folder, "large", [started("large"), planned(len(many)), *many, finished("conformance")])


main(Path(sys.argv[1]))
