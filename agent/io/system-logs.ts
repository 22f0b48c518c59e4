import { constants } from 'node:fs';
import { open, readdir, readlink, stat } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join, normalize } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Sys } from '../../base/sys/types.ts';
import { aggregated, journalArguments, logFileNames, readNodeLogQuery, type NodeLogQuery } from '../core/node-log-query.ts';
import { directoryPage } from '../core/server-pages.ts';
import { HttpFailure } from './server.ts';

export interface SystemLogsOptions {
  /** /var/log. */
  readonly root: string;
  readonly sys: Pick<Sys, 'run'>;
  /** `enableSystemLogQuery`. */
  readonly queries: boolean;
}

const journalMs = 30_000;

/**
 * `/logs/`: the machine's log folder, and with `enableSystemLogQuery` queries of services. Links are followed as long
 * as they end inside of the folder: pods can write there, and must not choose what else is read with the node's rights.
 */
export function createSystemLogs({ root, sys, queries }: SystemLogsOptions) {
  /** The opened file or folder; null when it is not there or leads outside. */
  const openInside = async (path: string) => {
    // Not blocking: a named pipe would wait for its writer.
    const file = await open(join(root, normalize(`/${path}`)), constants.O_RDONLY | constants.O_NONBLOCK).catch(() => null);
    if (file === null) return null;
    // Asked of what is open, so that nothing can be swapped in between.
    const real = await readlink(`/proc/self/fd/${file.fd}`);
    const facts = await file.stat();
    if ((real === root || real.startsWith(`${root}/`)) && (facts.isFile() || facts.isDirectory())) return { file, facts, real };
    await file.close();
    return null;
  };

  const sendFile = async (path: string, response: ServerResponse, signal: AbortSignal): Promise<boolean> => {
    const found = await openInside(path);
    if (found === null) return false;
    const { file, facts, real } = found;
    if (facts.isDirectory()) {
      await file.close();
      const names = await Promise.all(
        (await readdir(real)).map(async (name) => ((await stat(join(real, name)).catch(() => null))?.isDirectory() === true ? `${name}/` : name)),
      );
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'last-modified': facts.mtime.toUTCString() });
      response.end(directoryPage(names));
      return true;
    }
    response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8', 'content-length': facts.size, 'last-modified': facts.mtime.toUTCString() });
    // A log that grows meanwhile must not send more than was said.
    if (facts.size === 0) {
      await file.close();
      response.end();
    } else await pipeline(file.createReadStream({ start: 0, end: facts.size - 1 }), response, { signal });
    return true;
  };

  const hasJournal = async (service: string, signal: AbortSignal): Promise<boolean> => {
    const answer = await sys
      .run({ argv: ['journalctl', '--field', '_SYSTEMD_UNIT'], timeoutMs: journalMs, maxOutputBytes: 1024 * 1024 }, signal)
      .catch(() => null);
    return answer !== null && answer.code === 0 && Buffer.from(answer.stdout).toString().includes(`${service}.service`);
  };

  const answerServices = async (query: NodeLogQuery, response: ServerResponse, signal: AbortSignal): Promise<void> => {
    response.writeHead(200, { 'content-type': 'text/plain;charset=UTF-8' });
    const inJournal: string[] = [];
    const inFiles: string[] = [];
    for (const service of query.services) ((await hasJournal(service, signal)) ? inJournal : inFiles).push(service);
    if (inJournal.length > 0) {
      const answer = await sys
        .run({ argv: journalArguments(query, inJournal), timeoutMs: journalMs, maxOutputBytes: 64 * 1024 * 1024 }, signal)
        .catch(() => null);
      if (answer === null) response.write('\nerror: journal output not available\n');
      else {
        response.write(answer.stdout);
        response.write(answer.stderr);
      }
    }
    if (inFiles.length > 0 && [query.sinceTime, query.untilTime, query.tailLines, query.boot, query.pattern].some((each) => each !== '')) {
      return void response.end(`\noptions present and query resolved to log files for [${inFiles.join(' ')}]\ntry without specifying options\n`);
    }
    for (const service of inFiles) {
      let found = null;
      for (const name of logFileNames(service)) {
        found = await openInside(name);
        if (found?.facts.isFile() === true) break;
        await found?.file.close();
        found = null;
      }
      if (found === null) response.write(`\nlog not found for ${service}\n`);
      else await pipeline(found.file.createReadStream(), response, { signal, end: false });
    }
    response.end();
  };

  return {
    /** `path` is what follows `/logs/`. */
    async answer(path: string, query: URLSearchParams, response: ServerResponse, signal: AbortSignal): Promise<void> {
      let file = path;
      const asked = queries ? readNodeLogQuery(query) : null;
      if (asked !== null) {
        if (asked.status === 400) throw new HttpFailure(400, `${aggregated(asked.problems)}\n`);
        if (path !== '' && path !== '/') throw new HttpFailure(406, 'path not allowed in query mode\n');
        const [only] = asked.query.files;
        if (only !== undefined && asked.problems.length === 0) {
          const found = await openInside(only.replaceAll('\\', '/'));
          if (found === null) asked.problems.push(`query: Invalid value: ${JSON.stringify(asked.query.files)}: openat ${only}: no such file or directory`);
          await found?.file.close();
        }
        if (asked.problems.length > 0) throw new HttpFailure(406, `${aggregated(asked.problems)}\n`);
        if (asked.query.services.length > 0) return answerServices(asked.query, response, signal);
        if (only !== undefined) file = only.replaceAll('\\', '/');
      }
      if (!(await sendFile(file, response, signal))) throw new HttpFailure(404, '404 page not found\n');
    },
  };
}
