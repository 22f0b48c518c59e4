import type { Outcome } from './ginkgo-report.ts';

/** A test's mark where the kernel lacks a protocol: what agnhost says of a socket that cannot be made. */
const NO_PROTOCOL = /protocol not supported/;

const unquoted = (name: string): string => name.replaceAll('_', ' ');

/**
 * What `go test -v` printed, as outcomes of the tests that have none below them; the first part of a name (the function
 * of the suite) is left out. A test that failed because the kernel lacks a protocol counts as skipped: it did not come
 * to what it is about. One that began and did not end is absent.
 */
export function readGoTest(text: string): Outcome[] {
  const said = new Map<string, string[]>();
  const ended = new Map<string, { result: Outcome['result']; seconds: number }>();
  let now = '';
  for (const line of text.split('\n')) {
    const turn = /^=== (?:RUN|NAME|CONT)\s+(\S+)/.exec(line)?.[1];
    if (turn !== undefined) now = turn;
    const [, word, name, seconds] = /^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)/.exec(line) ?? [];
    if (name !== undefined) ended.set(name, { result: word === 'PASS' ? 'passed' : word === 'FAIL' ? 'failed' : 'skipped', seconds: Number(seconds) });
    else if (turn === undefined && line.trim() !== '') said.set(now, [...(said.get(now) ?? []), line.trim()]);
  }
  const parents = new Set([...ended.keys()].map((name) => name.slice(0, name.lastIndexOf('/'))));
  return [...ended]
    .filter(([name]) => !parents.has(name) && name.includes('/'))
    .map(([path, { result, seconds }]) => {
      const name = unquoted(path.slice(path.indexOf('/') + 1));
      const lines = (said.get(path) ?? []).filter((line) => !/^\S+\.go:\d+: (Applying|Creating|Updating|Deleting) /.test(line));
      if (result === 'passed') return { name, result, seconds, reason: '' };
      if (result === 'failed' && lines.some((line) => NO_PROTOCOL.test(line)))
        return { name, result: 'skipped', seconds, reason: 'needs a protocol that this kernel lacks' };
      return { name, result, seconds, reason: lines.slice(0, 3).join(' ') };
    });
}
