import { writeSync } from 'node:fs';
import { realClock } from '../../base/clock.ts';
import { openStore } from '../../control/io/store.ts';

/* Writes without end and says each number once it is acknowledged; it is killed from outside. */
const store = openStore({
  path: process.argv[2]!,
  clock: realClock,
  fatal(error) {
    throw error;
  },
});
let count = Number(process.argv[3]);
for (;;) {
  const batch: number[] = [];
  for (let at = 0; at < 7; at++) {
    count++;
    batch.push(count);
    store.put('/x', 'a', `o${count % 50}`, { kind: 'X', metadata: { name: `o${count % 50}` }, count });
  }
  await store.committed();
  writeSync(1, `${batch.at(-1)} ${store.revision}\n`);
}
