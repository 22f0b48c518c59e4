import { Worker } from 'node:worker_threads';
import { messageOf, OpError } from '../../base/errors.ts';
import { failureText, type FeedNotice, type FeedOrder, type FeedReport } from './feed-serve.ts';
import { threadEntry } from './threads.ts';

/** The thread's own heap; what it hands on lies outside it. */
const HEAP_MIB = 96;

/**
 * Starts the thread that serves the control socket. `answer` answers requests other than `feed`; what it throws is told
 * to whoever asked. Disposing it lets viewers read to the end, and removes the socket. Throws OpError when it cannot listen.
 */
export async function startFeed(
  order: Omit<FeedOrder, 'role'>,
  options: { answer: (request: Readonly<Record<string, unknown>>) => object | Promise<object>; say: (text: string) => void },
): Promise<AsyncDisposable> {
  const worker = new Worker(threadEntry(), {
    workerData: { role: 'feed', ...order } satisfies FeedOrder,
    transferList: [order.end.port],
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
  });
  const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  const tell = (notice: FeedNotice): void => worker.postMessage(notice, []);
  const answer = async (id: number, request: object): Promise<void> => {
    try {
      tell({ kind: 'answer', id, answer: await options.answer(request as Readonly<Record<string, unknown>>) });
    } catch (error) {
      tell({ kind: 'answer', id, answer: { error: failureText(error) } });
    }
  };
  await new Promise<void>((resolve, reject) => {
    worker.on('message', (report: FeedReport) => {
      if (report.kind === 'ready') resolve();
      else if (report.kind === 'ask') void answer(report.id, report.request);
      else reject(new OpError(report.failure.code, report.failure.doing, report.failure.detail, { advice: report.failure.advice }));
    });
    worker.on('error', (error) => {
      options.say(`the control socket has ended, traffic goes on: ${messageOf(error)}`);
      reject(error);
    });
  });
  return {
    [Symbol.asyncDispose]: async () => {
      tell({ kind: 'end' });
      await exited;
    },
  };
}
