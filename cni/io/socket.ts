import { chmod, mkdir, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Answer } from '../engine.ts';

/** The daemon's end of `sys/front/cni.c`, which tells the form of question and answer. */

export type Ask = (env: Readonly<Record<string, string>>, stdin: string) => Promise<Answer>;

/** What no network configuration is as large as. */
const MAX_QUESTION_BYTES = 5 * 1024 * 1024;
/** A front writes its question at once. */
const QUESTION_MS = 30_000;
/** How long an answer may take to be read when the daemon ends. */
const PARTING_MS = 1_000;

/** Environment and standard input out of a whole question; null when it is cut off. */
export function readQuestion(question: Buffer): { env: Record<string, string>; stdin: string } | null {
  const env: Record<string, string> = {};
  for (let at = 0; ;) {
    const end = question.indexOf(0, at);
    if (end < 0) return null;
    if (end === at) return { env, stdin: question.toString('utf8', end + 1) };
    const entry = question.toString('utf8', at, end);
    const equals = entry.indexOf('=');
    if (equals > 0) env[entry.slice(0, equals)] = entry.slice(equals + 1);
    at = end + 1;
  }
}

export function answerBytes({ code, text }: Answer): Buffer {
  const body = Buffer.from(text);
  const head = Buffer.alloc(5);
  head.write(String(code), 0);
  head.writeUInt32LE(body.length, 1);
  return Buffer.concat([head, body]);
}

function serve(socket: Socket, ask: Ask, log: Log): void {
  const chunks: Buffer[] = [];
  let bytes = 0;
  socket.setTimeout(QUESTION_MS, () => socket.destroy());
  socket.on('error', (error) => log.debug(2, 'A caller went away', { error: error.message }));
  socket.on('data', (chunk) => {
    bytes += chunk.length;
    if (bytes > MAX_QUESTION_BYTES) socket.destroy();
    else chunks.push(chunk);
  });
  socket.on('end', () => {
    socket.setTimeout(0);
    const question = readQuestion(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    if (question === null) return void socket.destroy();
    ask(question.env, question.stdin).then(
      (answer) => socket.end(answerBytes(answer)),
      (error: unknown) => {
        // A defect: the caller does the same without us, and the log says why.
        log.error('A call could not be answered', { error: error instanceof Error ? (error.stack ?? messageOf(error)) : messageOf(error) });
        socket.destroy();
      },
    );
  });
}

async function listens(path: string): Promise<boolean> {
  return await new Promise((resolve) => {
    const probe = connect(path);
    probe.once('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.once('error', () => resolve(false));
  });
}

/** Listens for the plugin's front until disposed; calls that have begun are answered first. */
export async function serveCalls(path: string, ask: Ask, log: Log): Promise<AsyncDisposable> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  if (await listens(path)) throw new OpError('conflict', `listen on ${path}`, 'another daemon listens there');
  await rm(path, { force: true });
  const running = new Set<Promise<Answer>>();
  const counted: Ask = (env, stdin) => {
    const one = ask(env, stdin);
    running.add(one);
    void one.finally(() => running.delete(one)).catch(() => undefined);
    return one;
  };
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    serve(socket, counted, log);
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) => reject(new OpError('failed', `listen on ${path}`, cause.message, { cause })));
    server.listen(path, resolve);
  });
  await chmod(path, 0o600);
  return {
    async [Symbol.asyncDispose]() {
      // Without the socket's file the front stands in at once.
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // Who has not asked yet asks the one that stands in.
      for (const socket of sockets) if (!socket.readableEnded) socket.destroy();
      await Promise.allSettled(running);
      const late = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, PARTING_MS);
      await closed;
      clearTimeout(late);
      await rm(path, { force: true });
    },
  };
}
