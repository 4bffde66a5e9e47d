"""Reads every file with every reader, and compares their results with each other and with results.json."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

cache, here, work = (Path(arg) for arg in sys.argv[1:4])
runs = [Path(arg) for arg in sys.argv[4:]]
failures = 0


def fail(text):
    global failures
    failures += 1
    print(f"FAILED: {text}"[:600])


def plain(file, group="classname"):
    """[class, name, status] of each case, as Python's own parser (expat) reads them."""
    rows = []
    for suite in ElementTree.parse(file).getroot():
        for case in suite.iter("testcase"):
            marks = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            of = case.get("classname") if group == "classname" else suite.get("name")
            rows.append([of, case.get("name"), (marks or ["passed"])[0]])
    return rows


def junitparser_rows(files):
    return [junitparser_file(file) for file in files]


def junitparser_file(file):
    import junitparser

    rows = []
    for suite in junitparser.JUnitXml.fromfile(str(file)):
        for case in suite:
            marks = [type(result).__name__.lower() for result in case.result]
            marks = [mark for mark in marks if mark in ("failure", "error", "skipped")]
            rows.append([case.classname, case.name, (marks or ["passed"])[0]])
    return rows


def program(*command):
    def rows(files):
        ended = subprocess.run([*command, *map(str, files)], capture_output=True, timeout=1200)
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr.decode(errors="replace")[-300:])
        return json.loads(ended.stdout)

    return rows


def readers():
    found = {}
    try:
        import junitparser  # noqa: F401

        found["junitparser"] = junitparser_rows
    except ImportError:
        pass
    if (cache / "node/node_modules/xml-js").is_dir():
        for name in ("xml2js", "xml-js", "junit-to-ctrf"):
            found[name] = program("node", str(here / "read.cjs"), str(cache / "node"), name)
    if (cache / "testgrid").is_file():
        found["testgrid"] = program(str(cache / "testgrid"))
    return found


def ascii_of(name):
    """junit-to-ctrf treats DEL and characters beyond the first plane as illegal: it writes a blank, or others."""
    return re.sub("[^!-~]", "", name)


def compare(found, files):
    cases = 0
    for name, rows in found.items():
        try:
            all_seen = rows(files)
        except Exception as error:  # any error of a reader is a finding
            fail(f"{name} breaks: {error}")
            continue
        for file, seen in zip(files, all_seen, strict=True):
            want = plain(file)
            if name == "junit-to-ctrf":  # it has suites instead of classes, and one word for failures and errors
                want = [[a, ascii_of(b), "failure" if c == "error" else c] for a, b, c in plain(file, "suite")]
                seen = [[a, ascii_of(b), c] for a, b, c in seen]
            cases += len(want)
            if not seen or seen != want:
                at = next((i for i, (a, b) in enumerate(zip(seen, want)) if a != b), min(len(seen), len(want)))
                first = f"{seen[at:at + 1]} instead of {want[at:at + 1]}"
                fail(f"{name} sees {len(seen)} cases of {len(want)} in {file}; first difference {first}")
    return cases


def schemas(files):
    try:
        from lxml import etree
    except ImportError:
        print("skipped: schemas, lxml is not installed")
        return
    found = sorted((cache / "xsd").glob("*.xsd"))
    if not found:
        fail("no schema was found")
    for xsd in found:
        try:
            schema = etree.XMLSchema(etree.parse(str(xsd)))
        except etree.Error as error:
            print(f"skipped: {xsd.name} is not a schema for libxml2: {error}")
            continue
        valid, first = 0, None
        # Two schemas do not allow a reason on <skipped>. Jenkins shows only that attribute, and TestGrid drops skips
        # without a reason, so it stays; everything else must be valid by these schemas, too.
        without_reasons = not xsd.name.startswith("jenkins-")
        for file in files:
            tree = etree.parse(str(file), etree.XMLParser(huge_tree=True))
            for skipped in tree.iter("skipped") if without_reasons else ():
                skipped.attrib.pop("message", None)
            if schema.validate(tree):
                valid += 1
            else:
                first = first or f"{file}: {schema.error_log[0].message}"
        print(f"schema {xsd.name}: {valid} of {len(files)} valid" + (f"; {first}" if first else ""))
        # This schema allows no attributes at the root, and no skips: only Ant's files are valid by it.
        if first and "attribute 'name' is not allowed" not in first:
            fail(f"{xsd.name}: {first}")


def results(files):
    try:
        import jsonschema
    except ImportError:
        print("skipped: results.json, jsonschema is not installed")
        return
    schema = json.loads((work / "schema.json").read_text())
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    for file in files:
        value = json.loads(file.read_text(encoding="utf-8"))
        error = next(validator(schema).iter_errors(value), None)
        if error:
            fail(f"{file}: {error.json_path}: {error.message}")
        value["runs"][0]["verdict"]["code"] = "zero"
        if validator(schema).is_valid(value):
            fail(f"{file}: a wrong value is valid by the schema")
    print(f"{validator.__name__}: {len(files)} results.json")


found = readers()
folders = [*sorted((work / "runs").glob("*/strict")), work / "merged/strict", *runs]
files = [file for folder in folders for file in [folder / "junit.xml", *sorted(folder.glob("junit/*.xml"))] if file.is_file()]
others = [file for flavour in ("surefire", "extended") for file in work.glob(f"*/*/{flavour}/junit.xml")]
others += [work / "merged" / flavour / "junit.xml" for flavour in ("surefire", "extended")]
cases = compare(found, [*files, *others])
schemas(files)
results([folder / "results.json" for folder in folders if (folder / "results.json").is_file()])
for folder in folders:
    if (folder / "results.json").is_file() and not folder.match("merged/*"):
        runs_read = json.loads((folder / "results.json").read_text(encoding="utf-8"))["runs"]
        wanted = sum(len(run["cases"]) for run in runs_read)
        seen = [row for row in plain(folder / "junit.xml") if not row[0].endswith(".phases")]
        if len(seen) != wanted:
            fail(f"{folder}: {len(seen)} cases in junit.xml, {wanted} in results.json")
flaky = (work / "merged/surefire/junit.xml").read_text(encoding="utf-8")
if "<flakyError " not in flaky or "watch.failed" not in flaky:
    fail("the merged run has no flaky case")
print(f"{', '.join(found)}: {len(files) + len(others)} files, {cases} cases read, {failures} failures")
if len(found) < 4:
    fail(f"only {len(found)} readers could be fetched")
sys.exit(1 if failures else 0)
