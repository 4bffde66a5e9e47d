// A proxy in front of the mock. PREFER makes the mock answer with a certain status (lines `METHOD PATH STATUS`; PATH is
// a prefix). CHANGE modifies the content of an answer (lines `PATH JSON`, without the query): it replaces fields of an
// object, or a whole list. The proxy logs each request and its result to SEEN. A registered runner gets the requested
// name, as on GitHub; the mock returns only the name of its example.
//
// usage: node front.cjs MOCK_PORT PREFER SEEN CHANGE     prints its own port
'use strict';
const fs = require('fs');
const http = require('http');
const [, , mock, prefer, seen, change] = process.argv;

function preferred(request) {
  const lines = fs.existsSync(prefer) ? fs.readFileSync(prefer, 'utf8').split('\n') : [];
  const line = lines.map((text) => text.split(' ')).find(([method, path]) => method === request.method && request.url.startsWith(path));
  return line && line[2];
}

function changed(request, body) {
  const lines = fs.existsSync(change) ? fs.readFileSync(change, 'utf8').split('\n') : [];
  const path = request.url.split('?')[0];
  const line = lines.find((text) => text.startsWith(`${path} `));
  if (!line || request.method !== 'GET') return body;
  const fields = JSON.parse(line.slice(path.length + 1));
  const answer = Array.isArray(fields) ? fields : { ...JSON.parse(body), ...fields };
  return Buffer.from(JSON.stringify(answer));
}

function named(body, asked) {
  try {
    const answer = JSON.parse(body);
    answer.runner.name = JSON.parse(asked).name;
    return Buffer.from(JSON.stringify(answer));
  } catch {
    return body;
  }
}

const server = http.createServer((request, response) => {
  const headers = { ...request.headers };
  // GitHub answers this type with application/json, which is the only one in its description.
  if (headers.accept === 'application/vnd.github+json') headers.accept = 'application/json';
  const status = preferred(request);
  if (status) headers.prefer = `code=${status}`;
  const options = { host: '127.0.0.1', port: Number(mock), method: request.method, path: request.url, headers };
  const asked = http.request(options, (answer) => {
    const parts = [];
    answer.on('data', (part) => parts.push(part));
    answer.on('end', () => {
      const registered = request.url.endsWith('/generate-jitconfig') && answer.statusCode === 201;
      const whole = changed(request, Buffer.concat(parts));
      const body = registered ? named(whole, Buffer.concat(sent)) : whole;
      // The mock's own report: a path, a body or a parameter that the description does not have.
      const violation = body.includes('stoplight.io/prism/errors') ? ` VIOLATION ${body}` : '';
      fs.appendFileSync(seen, `${request.method} ${request.url} ${answer.statusCode}${violation}\n`);
      response.writeHead(answer.statusCode, { ...answer.headers, 'content-length': body.length });
      response.end(body);
    });
  });
  asked.on('error', (error) => { response.writeHead(500); response.end(String(error)); });
  const sent = [];
  request.on('data', (part) => sent.push(part));
  request.pipe(asked);
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
