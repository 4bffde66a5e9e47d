// Prints [class, name, status] of each case of JUnit files, a list for each file, as the library of a GitHub reporter
// reads them, with the fields that the reporter uses. usage: read.cjs FOLDER-WITH-node_modules LIBRARY FILE...
const fs = require('fs');
const path = require('path');
const { createRequire } = require('module');
const [folder, library, ...files] = process.argv.slice(2);
const load = createRequire(path.join(folder, 'package.json'));

const word = (testcase) => ['failure', 'error', 'skipped'].find((mark) => testcase[mark] !== undefined) ?? 'passed';

// dorny/test-reporter, java-junit: reads suites one level deep, and throws on a suite without a name.
async function xml2js(file) {
  const text = fs.readFileSync(file, 'utf8');
  const { testsuites } = await load('xml2js').parseStringPromise(text, { trim: true });
  return testsuites.testsuite.flatMap((suite) => {
    if (!suite.$.name || Number.isNaN(parseFloat(suite.$.time))) throw new Error('a suite without name or time');
    return (suite.testcase ?? []).map((testcase) => [testcase.$.classname, testcase.$.name, word(testcase)]);
  });
}

// mikepenz/action-junit-report.
function xmlJs(file) {
  const tree = load('xml-js').xml2js(fs.readFileSync(file, 'utf8'), { compact: true });
  const list = (value) => (value === undefined ? [] : Array.isArray(value) ? value : [value]);
  return list(tree.testsuites.testsuite).flatMap((suite) =>
    list(suite.testcase).map((t) => [t._attributes.classname, t._attributes.name, word(t)]),
  );
}

// CTRF reporters.
async function ctrf(file) {
  const { convertJUnitToCTRFReport, convertJUnitToCTRF } = load('junit-to-ctrf');
  const convert = convertJUnitToCTRFReport ?? convertJUnitToCTRF;
  const report = await convert(file, { log: false });
  const words = { passed: 'passed', failed: 'failure', skipped: 'skipped' };
  return report.results.tests.map((test) => [[test.suite].flat()[0], test.name, words[test.status] ?? test.status]);
}

const read = { xml2js, 'xml-js': xmlJs, 'junit-to-ctrf': ctrf }[library];
const all = async () => {
  const rows = [];
  for (const file of files) rows.push(await read(file));
  return rows;
};
all().then(
  (rows) => process.stdout.write(JSON.stringify(rows)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
