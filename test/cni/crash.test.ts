import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test } from 'node:test';
import { ip, Lab, linkOf, missing, type PluginResult } from './lab.ts';

/** What goes wrong about the plugin: a full disk, another boot, calls that meet each other, a daemon that comes and goes. */

const skip = missing() ?? false;
const WITH_PORT = { runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80 }] } };

describe('crash safety', { skip, concurrency: false, timeout: 600_000 }, () => {
  test('on a full disk an ADD fails with words and leaves nothing; with room again both work', async () => {
    await using lab = new Lab();
    mkdirSync(lab.dataDir);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=192k', 'tmpfs', lab.dataDir]);
    try {
      await lab.daemon();
      const [a, b] = [lab.space('a'), lab.space('b')];
      await lab.call('ADD', 'a', a, WITH_PORT);
      const fill = join(lab.dataDir, 'fill');
      try {
        writeFileSync(fill, Buffer.alloc(256 * 1024));
      } catch (error) {
        assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
      }
      let failed: PluginResult | null = null;
      // The file may have pages that are free: it is full after some pods at most.
      for (let at = 0; at < 40 && failed === null; at++) {
        const { code, out } = await lab.plugin('ADD', `full-${at}`, b).ended;
        if (code !== 0) failed = JSON.parse(out) as PluginResult;
        else ip('-n', b, 'link', 'delete', 'eth0');
      }
      assert.ok(failed !== null, 'the disk was never full');
      assert.equal(failed.code, 5);
      assert.match(`${failed.msg} ${JSON.stringify(failed)}`, /full|room|space/);
      assert.equal(linkOf(b, 'eth0'), null);
      rmSync(fill);
      await lab.call('ADD', 'again', b);
      for (const container of ['a', 'again', ...Array.from({ length: 40 }, (_, at) => `full-${at}`)]) await lab.call('DEL', container, '', WITH_PORT);
      assert.deepEqual(lab.remains(), []);
    } finally {
      execFileSync('umount', ['-l', lab.dataDir]);
    }
  });

  test('what an earlier boot had is forgotten, in the store and in the kernel', async () => {
    await using lab = new Lab();
    const a = lab.space('a');
    await lab.call('ADD', 'old', a, WITH_PORT);
    // As after a reboot of the machine: links are gone, the file is of another boot; the ruleset is of a node that came up with it saved.
    ip('-n', a, 'link', 'delete', 'eth0');
    const db = new DatabaseSync(join(lab.dataDir, 'state.db'));
    assert.equal(db.prepare("UPDATE fact SET value = 'another boot' WHERE name = 'boot'").run().changes, 1);
    db.close();
    await lab.daemon();
    assert.deepEqual(lab.remains(), []);
    assert.equal((await lab.call('ADD', 'new', a, WITH_PORT)).ips.length, 1);
    await lab.call('DEL', 'old', '', WITH_PORT);
    assert.equal(lab.rows().port.length, 1);
    await lab.call('DEL', 'new', a, WITH_PORT);
    assert.deepEqual(lab.remains(), []);
  });

  for (const withDaemon of [true, false])
    test(`two ADDs of one container at once ${withDaemon ? 'through the daemon' : 'without it'}: at most one has the pod, and a DEL takes all`, async () => {
      await using lab = new Lab();
      if (withDaemon) await lab.daemon();
      for (let round = 0; round < 3; round++) {
        const a = lab.space(`a${round}`);
        const container = `c${round}`;
        const answers = await Promise.all([0, 1].map(() => lab.plugin('ADD', container, a, WITH_PORT).ended));
        const won = answers.filter(({ code }) => code === 0);
        assert.ok(won.length <= 1, 'both were told that they have it');
        if (withDaemon) assert.equal(won.length, 1);
        // Who was told so has what the answer says.
        if (won.length === 1) {
          const { ips } = JSON.parse(won[0]!.out) as PluginResult;
          assert.ok(ip('-n', a, 'addr', 'show', 'eth0').includes(ips[0]!.address));
          await lab.call('CHECK', container, a);
        }
        await lab.call('DEL', container, a, WITH_PORT);
        assert.deepEqual(lab.remains(), []);
      }
    });

  test('DELs while the daemon ends and starts all succeed, and leave nothing', async () => {
    await using lab = new Lab();
    let daemon = await lab.daemon();
    for (const how of ['SIGTERM', 'SIGKILL'] as const) {
      const names = Array.from({ length: 6 }, (_, at) => `${how.toLowerCase()}${at}`);
      const extra = (at: number): Record<string, unknown> => ({ runtimeConfig: { portMappings: [{ hostPort: 9000 + at, containerPort: 80 }] } });
      for (const [at, name] of names.entries()) await lab.call('ADD', name, lab.space(name), extra(at));
      const dels = names.map((name, at) => lab.plugin('DEL', name, '', extra(at)).ended);
      daemon.kill(how);
      const answers = await Promise.all(dels);
      assert.deepEqual(
        answers.filter(({ code }) => code !== 0).map(({ out, err }) => `${out}${err}`),
        [],
      );
      daemon = await lab.daemon();
      assert.deepEqual(lab.remains(), []);
    }
    assert.equal(existsSync(lab.socket), true);
  });

  test('cleanup takes the table of policies away, and finds none the second time', async () => {
    await using lab = new Lab();
    const apply = async (text: string): Promise<void> => assert.equal((await lab.start(lab.node, ['nft', '-f', '-'], { input: text }).ended).code, 0);
    await apply('table inet nodelet-policy { chain forward { type filter hook forward priority filter; drop; }; }\ntable inet other { }\n');
    for (let times = 0; times < 2; times++) {
      const { code, err } = await lab.nodelet('cni', 'cleanup').ended;
      assert.equal(code, 0, err);
      assert.doesNotMatch(lab.nft(), /nodelet-policy/);
    }
    assert.match(lab.nft(), /table inet other/);
  });
});
