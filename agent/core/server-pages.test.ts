import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flagzOf } from './flagz.ts';
import { aggregated, journalArguments, readNodeLogQuery } from './node-log-query.ts';
import { directoryPage } from './server-pages.ts';

test('/flagz shows what counts, whether it came by file or flag', () => {
  const config = { maxPods: 20, clusterDNS: ['10.0.0.10'], featureGates: { B: true, A: false }, authentication: { anonymous: { enabled: false } } };
  const flags = flagzOf(config, new Map([['hostname-override', 'n1']]));
  assert.equal(flags['max-pods'], '20');
  assert.equal(flags['cluster-dns'], '[10.0.0.10]');
  assert.equal(flags['feature-gates'], 'A=false,B=true');
  assert.equal(flags['anonymous-auth'], 'false');
  assert.equal(flags['hostname-override'], 'n1');
  assert.equal(flags['node-ip'], '');
});

test('a folder’s page gives no name a chance to be more than a name', () => {
  assert.equal(
    directoryPage(['b/', 'a<b>&"\'.log', '50%?#']),
    '<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n<a href="50%2525%3F%23">50%?#</a>\n<a href="a%3Cb%3E&%22\'.log">a&#60;b&#62;&#38;&#34;&#39;.log</a>\n<a href="b/">b/</a>\n</pre>\n',
  );
});

test('node log queries', () => {
  const ask = (query: string) => readNodeLogQuery(new URLSearchParams(query));
  const problem = (query: string): string => {
    const answer = ask(query);
    return answer === null ? 'none' : `${answer.status} ${aggregated(answer.problems)}`;
  };
  assert.equal(ask(''), null);
  assert.deepEqual(ask('query=kubelet')?.problems, []);
  assert.match(problem('query=%20'), /^400 query: Invalid value: \[" "\]: may not be empty$/);
  assert.match(problem('query=kubelet&sinceTime=yesterday'), /^400 sinceTime: Invalid value: "yesterday": invalid time format$/);
  assert.match(problem('query=kubelet&tailLines=many'), /^400 tailLines: Invalid value: "many": strconv\.Atoi/);
  assert.match(problem('tailLines=5'), /^406 query: Required value: cannot be empty with options$/);
  assert.match(problem('query=kubelet&query=/a.log'), /^406 query: .*cannot specify a file and service$/);
  assert.match(problem('query=/a.log&query=/b.log'), /cannot specify more than one file$/);
  assert.match(problem('query=/a.log&boot=0'), /cannot specify file with options$/);
  assert.match(problem('query=a;reboot'), /input contains unsupported characters$/);
  assert.match(problem('query=-q%20x'), /input contains unsupported characters$/);
  assert.match(problem('query=kubelet&boot=1'), /boot: Invalid value: 1: must be less than 1$/);
  assert.match(problem('query=kubelet&tailLines=100001'), /must be between 0 and 100000, inclusive$/);
  const asked = ask('query=kubelet&sinceTime=2026-01-02T03:04:05Z&tailLines=10&pattern=err&boot=-1');
  assert.ok(asked !== null);
  assert.deepEqual(journalArguments(asked.query, ['kubelet']), [
    'journalctl',
    '--utc',
    '--no-pager',
    '--output=short-precise',
    '--since=2026-01-02 03:04:05',
    '--pager-end',
    '--lines=10',
    '--unit=kubelet',
    '--grep=err',
    '--boot',
    '-1',
  ]);
});
