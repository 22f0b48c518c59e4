import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { addressesBelow } from './addresses.ts';

test('addresses of both pod networks are found in the mounts of another process', { timeout: 10_000 }, async (t) => {
  if (process.geteuid?.() !== 0) return t.skip('needs root: makes a mount namespace');
  const folder = mkdtempSync(join(tmpdir(), 'churn-'));
  const script = `mount -t tmpfs churn '${folder}' && echo there && exec sleep 60`;
  const other = spawn('unshare', ['--mount', 'sh', '-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const file = `${folder}-state.db`;
  try {
    await once(other.stdout, 'data');
    const root = `/proc/${other.pid}/root${folder}`;
    const found = (): string[] => addressesBelow((inNode) => `${root}${inNode}`);
    assert.deepEqual(found(), []);
    mkdirSync(`${root}/run/cni/networks/nodelet`, { recursive: true });
    for (const name of ['10.0.0.2', 'fd00::2', 'last_reserved_ip.0', 'lock']) writeFileSync(`${root}/run/cni/networks/nodelet/${name}`, '');
    mkdirSync(`${root}/run/nodelet/cni`, { recursive: true });
    using store = new DatabaseSync(file);
    store.exec(`PRAGMA journal_mode = WAL;
      CREATE TABLE address (address TEXT, container TEXT); CREATE TABLE port (protocol TEXT, number INTEGER, container TEXT);
      CREATE TABLE attachment (link TEXT, container TEXT);
      INSERT INTO address VALUES ('10.0.0.3', 'c'); INSERT INTO port VALUES ('TCP', 80, 'c'); INSERT INTO attachment VALUES ('veth1', 'c');`);
    for (const end of ['', '-wal']) copyFileSync(`${file}${end}`, `${root}/run/nodelet/cni/state.db${end}`);
    assert.deepEqual(found(), ['10.0.0.2', 'fd00::2', '10.0.0.3 of c', 'TCP 80 of c', 'veth1 of c']);
  } finally {
    other.kill('SIGKILL');
    for (const end of ['', '-wal', '-shm']) rmSync(`${file}${end}`, { force: true });
    rmSync(folder, { recursive: true });
  }
});
