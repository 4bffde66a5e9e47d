// Extracts the paths for runners from GitHub's published OpenAPI description, with everything that they refer to, so
// that a mock of it starts within a second.
//
// usage: node cut.cjs DESCRIPTION OUT
'use strict';
const fs = require('fs');
const [, , from, to] = process.argv;
const whole = JSON.parse(fs.readFileSync(from, 'utf8'));

const wanted = [
  /^\/(repos\/\{owner\}\/\{repo\}|orgs\/\{org\})\/actions\/runners(\/|$)/,
  /^\/orgs\/\{org\}\/actions\/runner-groups$/,
  /^\/(repos\/\{owner\}\/\{repo\}|orgs\/\{org\})\/actions\/permissions$/,
  /^\/(repos\/\{owner\}\/\{repo\}|orgs\/\{org\})\/actions\/permissions\/fork-pr-contributor-approval$/,
  /^\/repos\/\{owner\}\/\{repo\}$/,
  /^\/repos\/\{owner\}\/\{repo\}\/actions\/runs(\/\{run_id\}\/jobs)?$/,
  /^\/repos\/\{owner\}\/\{repo\}\/actions\/(permissions\/workflow|variables|organization-variables)$/,
  /^\/repos\/\{owner\}\/\{repo\}\/(pages|rules\/branches\/\{branch\})$/,
  /^\/repos\/\{owner\}\/\{repo\}\/branches\/\{branch\}\/protection\/required_status_checks$/,
  /^\/app\/installations\/\{installation_id\}\/access_tokens$/,
];
const paths = {};
for (const [path, item] of Object.entries(whole.paths)) {
  if (wanted.some((pattern) => pattern.test(path))) paths[path] = item;
}

// Added on 2026-09-03, and not in the description yet.
// https://docs.github.com/en/rest/actions/self-hosted-runners
for (const base of ['/repos/{owner}/{repo}', '/orgs/{org}']) {
  const path = `${base}/actions/runners/deprecations/{version}`;
  if (paths[path]) continue;
  const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
  const schema = {
    type: 'object',
    required: ['runner_version', 'runtime_deprecates_at'],
    properties: {
      runner_version: { type: 'string' },
      runtime_deprecates_at: { type: 'string', format: 'date-time', nullable: true },
      registration_deprecates_at: { type: 'string', format: 'date-time', nullable: true },
    },
  };
  const example = { runner_version: '2.337.0', runtime_deprecates_at: null };
  paths[path] = {
    get: {
      operationId: `added/${path}`,
      parameters: names.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
      responses: {
        200: { description: 'dates', content: { 'application/json': { schema, example } } },
        404: { description: 'unknown version' },
      },
    },
  };
}

const cut = { openapi: whole.openapi, info: whole.info, servers: [{ url: '/' }], paths, components: {} };

// Everything that the paths refer to, recursively.
const seen = new Set();
function follow(value) {
  if (Array.isArray(value)) return value.forEach(follow);
  if (!value || typeof value !== 'object') return undefined;
  if (typeof value.$ref === 'string' && !seen.has(value.$ref)) {
    seen.add(value.$ref);
    const [, , kind, name] = value.$ref.split('/');
    cut.components[kind] ??= {};
    cut.components[kind][name] = whole.components[kind][name];
    follow(cut.components[kind][name]);
  }
  return Object.values(value).forEach(follow);
}
follow(paths);

// The description's example of a just-in-time configuration is the alphabet, with which no runner can start.
const file = (text) => Buffer.from(text).toString('base64');
const config = file(JSON.stringify({ '.runner': file('{"AgentName":"x"}'), '.credentials': file('{}') }));
let text = JSON.stringify(cut, null, 1);
text = text.replaceAll(/("encoded_jit_config": )"[^"]*"/g, `$1"${config}"`);
fs.writeFileSync(to, text);
console.log(`${Object.keys(paths).length} paths`);
