import { mkdirSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { OpError } from '../../base/errors.ts';

/** Longer than a runtime waits for all that may stand before. */
const WAIT_MS = 60_000;

/**
 * Waits until no other process has the turn of this data folder, and has it until it is disposed or this process ends,
 * however it ends: an SQLite file that is locked and never written to. Throws OpError `unavailable`.
 */
export function takeTurn(dir: string, waitMs: number = WAIT_MS): Disposable {
  let db: DatabaseSync | undefined;
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    db = new DatabaseSync(`${dir}/turn.db`);
    db.exec(`PRAGMA busy_timeout = ${waitMs}; BEGIN EXCLUSIVE`);
  } catch (cause) {
    db?.close();
    throw new OpError('unavailable', `wait for a turn in ${dir}`, (cause as Error).message, { cause, advice: 'another call of the plugin goes on there' });
  }
  const held = db;
  return { [Symbol.dispose]: () => held.close() };
}
