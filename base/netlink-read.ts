import { hasCode, OpError } from './errors.ts';
import { answersOf } from './netlink.ts';

const EINTR = 4;
/** A list that changes all the time is asked for this often. */
const TRIES = 5;

interface Read {
  readonly datagrams: Uint8Array[];
  /** 0: it is whole. */
  readonly errno: number;
}

/** Asks once. Of a part, what is missing would be taken for gone: an answer without its end is none (OpError `deadline`). */
async function askOnce(ask: () => Promise<Uint8Array[]>, doing: string): Promise<Read> {
  const datagrams = await ask();
  const answers = answersOf(datagrams);
  if (answers.length === 0) throw new OpError('deadline', doing, 'the kernel did not answer');
  return { datagrams, errno: answers.find((answer) => answer.errno !== 0)?.errno ?? 0 };
}

/** An answer with its end. A machine out of breath is asked once more, then it throws OpError `deadline`. */
export async function readAnswer(ask: () => Promise<Uint8Array[]>, doing: string): Promise<Read> {
  try {
    return await askOnce(ask, doing);
  } catch (error) {
    if (!hasCode(error, 'deadline')) throw error;
    return await askOnce(ask, doing);
  }
}

/** A whole list, as `readAnswer`. One that a change overtook says so (EINTR) and is asked for again; the last try's errno is the caller's. */
export async function readList(ask: () => Promise<Uint8Array[]>, doing: string): Promise<Read> {
  for (let tries = 1; ; tries++) {
    const read = await readAnswer(ask, doing);
    if (read.errno !== EINTR || tries === TRIES) return read;
  }
}
