import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { takeTurn } from './turn.ts';

test('one process has the turn, and it is free once that process was killed', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'turn-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const script = `import { takeTurn } from ${JSON.stringify(new URL('turn.ts', import.meta.url).href)}; globalThis.held = takeTurn(process.argv[1]); process.stdout.write('mine'); setInterval(() => {}, 1000);`;
  const other = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', script, dir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => other.kill('SIGKILL'));
  await once(other.stdout, 'data');
  assert.throws(
    () => takeTurn(dir, 20),
    (error) => hasCode(error, 'unavailable'),
  );
  other.kill('SIGKILL');
  await once(other, 'exit');
  {
    using _mine = takeTurn(dir, 20);
    assert.throws(() => takeTurn(dir, 20));
  }
  takeTurn(dir, 20)[Symbol.dispose]();
  assert.deepEqual(
    readdirSync(dir).map((name) => [name, statSync(join(dir, name)).size]),
    [['turn.db', 0]],
  );
});
