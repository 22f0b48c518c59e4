/**
 * A client of its own process, so that it can stand in a network namespace: asks each URL again and again with a
 * connection for each request and with two that are kept, until standard input ends; then prints what it saw as JSON.
 */
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { messageOf } from '../../base/errors.ts';
import type { Served } from './clients.ts';

const EACH_MS = 5_000;
const PAUSE_MS = 60;
const MOST_FAILURES = 100;

interface Counts {
  requests: number;
  slowestMs: number;
  readonly failures: string[];
  readonly byPod: Record<string, number>;
}

function get(url: string, agent: Agent): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, timeout: EACH_MS }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => void (text += chunk));
      answer.on('end', () => {
        if (answer.statusCode === 200) resolve(text.trim());
        else reject(new Error(`status ${answer.statusCode ?? 0}`));
      });
      answer.on('error', reject);
    });
    asked.on('timeout', () => asked.destroy(new Error(`no answer in ${EACH_MS} ms`)));
    asked.on('error', reject);
    asked.end();
  });
}

async function loop(url: string, kind: string, agent: Agent, counts: Counts, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const begunAt = performance.now();
    try {
      const pod = await get(url, agent);
      counts.byPod[pod] = (counts.byPod[pod] ?? 0) + 1;
    } catch (error) {
      if (counts.failures.length < MOST_FAILURES) counts.failures.push(`${new Date().toISOString()} ${kind}: ${messageOf(error)}`);
    }
    counts.requests += 1;
    counts.slowestMs = Math.max(counts.slowestMs, performance.now() - begunAt);
    await delay(PAUSE_MS, undefined, { signal }).catch(() => undefined);
  }
  agent.destroy();
}

const stop = new AbortController();
const all: Record<string, Counts> = {};
const work = process.argv.slice(2).flatMap((url) => {
  const counts: Counts = { requests: 0, slowestMs: 0, failures: [], byPod: {} };
  all[url] = counts;
  const kept = (): Agent => new Agent({ keepAlive: true, maxSockets: 1 });
  return [
    loop(url, 'new', new Agent({ keepAlive: false }), counts, stop.signal),
    loop(url, 'kept', kept(), counts, stop.signal),
    loop(url, 'kept', kept(), counts, stop.signal),
  ];
});
process.stdin.resume();
await once(process.stdin, 'end');
stop.abort();
await Promise.all(work);
process.stdout.write(JSON.stringify(all satisfies Record<string, Served>));
