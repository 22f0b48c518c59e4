import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, describe, test } from 'node:test';
import { execa } from 'execa';
import {
  acceleratorOf,
  bootCommand,
  imageName,
  jobScript,
  needQemu,
  originOf,
  PIECE_NAMES,
  shellLine,
  umlProblem,
  unknownNames,
  usualKind,
  workOf,
  type Boot,
} from './plan.ts';

const boot: Boot = {
  kind: 'qemu',
  program: '/usr/bin/qemu-system-x86_64',
  image: { disk: '/c/disk', kernel: '/c/vmlinuz', initrd: '/c/initrd' },
  exchange: '/r/exchange',
  assets: null,
  images: null,
  runDir: '/r',
  memoryMiB: 3072,
  cpus: 2,
  accelerator: 'tcg',
};

describe('the command line of a machine', () => {
  const after = (line: readonly string[], option: string): string[] => line.flatMap((word, at) => (word === option ? [line[at + 1] ?? ''] : []));

  test('QEMU: two processors, no network, and never a write to the image', () => {
    const line = bootCommand(boot);
    assert.equal(line[0], boot.program);
    assert.deepEqual([after(line, '-smp'), after(line, '-m'), after(line, '-nic')], [['2'], ['3072'], ['none']]);
    assert.match(after(line, '-append').join(), /root=\/dev\/vda rw console=ttyS0/);
    assert.deepEqual(
      after(line, '-drive').map((drive) => drive.split(',').filter((part) => /^(file|file\.locking|snapshot)=/.test(part))),
      [['file=/c/disk', 'file.locking=off', 'snapshot=on']],
    );
    assert.deepEqual(after(line, '-virtfs'), ['local,path=/r/exchange,mount_tag=exchange,security_model=none,multidevs=remap']);
    assert.ok(line.includes('-no-reboot'));
  });

  test('QEMU: without systemd where that is asked for', () => {
    assert.doesNotMatch(after(bootCommand(boot), '-append').join(), /init=/);
    assert.match(after(bootCommand({ ...boot, kind: 'bare' }), '-append').join(), / init=\/usr\/local\/sbin\/nodelet-init /);
  });

  test('QEMU: assets and images are shared read-only', () => {
    assert.match(after(bootCommand({ ...boot, assets: '/a' }), '-virtfs')[1] ?? '', /path=\/a,mount_tag=assets,.*readonly=on/);
    assert.match(after(bootCommand({ ...boot, images: '/i' }), '-virtfs')[1] ?? '', /path=\/i,mount_tag=images,.*readonly=on/);
    assert.throws(() => bootCommand({ ...boot, assets: '/a,readonly=off' }), RangeError);
  });

  test('QEMU: KVM where the processor has it, not where only its device file is', () => {
    assert.equal(acceleratorOf('flags\t\t: fpu vmx sse', true), 'kvm');
    assert.equal(acceleratorOf('flags\t\t: fpu svm sse', true), 'kvm');
    assert.equal(acceleratorOf('flags\t\t: fpu vmx sse', false), 'tcg');
    assert.equal(acceleratorOf('flags\t\t: fpu sse', true), 'tcg');
  });

  test('QEMU: emulated, its clock goes by what it has executed, so that every time limit in it is longer by one factor', () => {
    const line = bootCommand(boot);
    assert.match(after(line, '-accel').join(), /^tcg,/);
    assert.deepEqual([after(line, '-icount'), after(line, '-rtc')], [['shift=0,sleep=on'], ['clock=vm']]);
    const real = bootCommand({ ...boot, accelerator: 'kvm' });
    assert.deepEqual([after(real, '-accel'), after(real, '-icount'), after(real, '-rtc')], [['kvm'], [], []]);
  });

  test('user-mode-linux: 6.1 does not run on a processor with AMX', () => {
    const flags = 'flags\t\t: fpu amx_bf16 avx512f amx_tile amx_int8\n';
    assert.match(umlProblem('6.1.176\n', flags) ?? '', /^the user-mode kernel 6\.1\.176 .* AMX/);
    assert.equal(umlProblem('6.1.176\n', 'flags\t\t: fpu avx512f\n'), null);
    assert.equal(umlProblem('6.18.2\n', flags), null);
  });

  test('user-mode-linux: a copy-on-write disk, our own first process, the host’s folders by name', () => {
    const line = bootCommand({ ...boot, kind: 'uml', program: '/usr/bin/linux.uml', memoryMiB: 1024, assets: '/a', images: '/i' });
    for (const word of [
      'mem=1024M',
      'ubd0=/r/cow,/c/disk',
      'init=/usr/local/sbin/nodelet-init',
      'nodelet.systemd',
      'nodelet.exchange=/r/exchange',
      'nodelet.assets=/a',
      'nodelet.images=/i',
    ])
      assert.ok(line.includes(word), word);
  });
});

describe('what runs in it', () => {
  test('suites go to `nodelet test` together, pieces stand for themselves, and one failure is the answer', () => {
    assert.equal(workOf(['root', 'up', 'cases']), 'failed=0; ./nodelet test root cases || failed=1; sh test/machine/inside/up.sh || failed=1; exit $failed');
    assert.deepEqual(unknownNames(['root', 'up', 'nosuch'], ['root']), ['nosuch']);
    for (const piece of PIECE_NAMES) assert.ok(existsSync(new URL(`inside/${piece}.sh`, import.meta.url)), piece);
  });

  test('what the user-mode kernel cannot serve is named', () => {
    assert.deepEqual(needQemu(['cgroups', 'sys', 'cases', 'up', 'netfilter']), ['netfilter']);
  });

  test('the kind is the one that is there soonest, where it serves', () => {
    assert.equal(usualKind('flags\t\t: fpu vmx\n', ['cgroups', 'cases']), 'uml');
    assert.equal(usualKind('flags\t\t: fpu vmx\n', ['netfilter']), 'qemu');
    assert.equal(usualKind('flags\t\t: fpu amx_tile\n', ['cgroups']), 'qemu');
  });

  test('words reach the shell as they were typed', () => {
    const words = ['printf', '%s|', `it's`, 'a b', '$HOME', '`id`', '*', '"', '\\', ''];
    assert.equal(
      execFileSync('sh', ['-c', shellLine(words)], { encoding: 'utf8' }),
      words
        .slice(2)
        .map((word) => `${word}|`)
        .join(''),
    );
  });

  test('a job replaces the sources, keeps what is installed, and knows of assets only where there are some', () => {
    const script = jobScript({ work: 'exit 3', archive: '001.tar', hasAssets: true, commit: 'abc+' });
    for (const kept of ['node_modules', '.tools', 'dist']) assert.ok(script.includes(`! -name ${kept} `), kept);
    assert.match(script, /^export NODELET_COMMIT=abc\+$/m);
    assert.match(script, /^export NODELET_ASSETS=\/assets$/m);
    assert.doesNotMatch(jobScript({ work: 'true', archive: '001.tar', hasAssets: false, commit: 'abc' }), /NODELET_ASSETS/);
    execFileSync('sh', ['-n'], { input: script });
  });

  test('every script of the machine is a script', () => {
    for (const name of ['image/nodelet-init', ...['check', 'work', 'init', ...PIECE_NAMES].map((each) => `${each}.sh`)])
      execFileSync('sh', ['-n', new URL(`inside/${name}`, import.meta.url).pathname]);
  });
});

describe('the image', () => {
  test('takes the first source with a whole distribution', () => {
    const targets = 'http://a/debian-security bookworm-security\nhttp://a/debian bookworm-updates\nhttp://a/debian bookworm\nhttp://b/debian bookworm\n';
    assert.deepEqual(originOf(targets), { site: 'http://a/debian', release: 'bookworm' });
    assert.equal(originOf(''), null);
  });

  test('has another name when anything in it changes', () => {
    const recipe = { release: 'bookworm', sources: 'deb x', packageLock: '1', nodeVersion: '24', scripts: ['a'] };
    const name = imageName(recipe);
    assert.match(name, /^[0-9a-f]{16}$/);
    assert.equal(imageName({ ...recipe }), name);
    for (const change of [{ release: 'trixie' }, { sources: 'deb y' }, { packageLock: '2' }, { nodeVersion: '25' }, { scripts: ['b'] }])
      assert.notEqual(imageName({ ...recipe, ...change }), name);
  });
});

describe('the command', () => {
  const main = new URL('main.ts', import.meta.url).pathname;
  const cache = mkdtempSync(`${tmpdir()}/nodelet-machine-`);
  after(() => rmSync(cache, { recursive: true, force: true }));
  const run = async (args: readonly string[], path = process.env['PATH']): Promise<{ code: number | undefined; err: string }> => {
    const result = await execa(process.execPath, ['--disable-warning=ExperimentalWarning', main, ...args], {
      reject: false,
      env: { PATH: path, XDG_CACHE_HOME: cache },
    });
    return { code: result.exitCode, err: result.stderr };
  };

  for (const [what, args, words] of [
    ['no suite', ['run'], /no suite is named/],
    ['an unknown suite', ['run', 'nosuch'], /there is no suite nosuch/],
    ['an unknown kind', ['--kind', 'vax', 'run', 'root'], /"vax" is no kind of machine/],
    ['an unknown option', ['run', '--frob', 'root'], /unknown option '--frob'/],
  ] as const) {
    test(`${what} is one clear message`, async () => {
      const { code, err } = await run(args);
      assert.equal(code, 2, err);
      assert.match(err, words);
      assert.doesNotMatch(err, /\n\s+at /);
    });
  }

  test('suites beyond the user-mode kernel are refused before anything is made', async () => {
    const { code, err } = await run(['--kind', 'uml', 'run', 'cgroups', 'netfilter']);
    assert.equal(code, 1, err);
    assert.match(err, /which netfilter may need\n.*--kind qemu/);
  });

  test('what this machine lacks is said with the packages that bring it', { skip: process.geteuid?.() === 0 ? false : 'needs root' }, async () => {
    const { code, err } = await run(['up'], '/nonexistent');
    if (existsSync('/usr/sbin/debootstrap')) assert.match(err, /missing here: (qemu-system-x86|user-mode-linux), and there is no apt-get.*\n.*apt-get install/);
    else assert.match(err, /missing here: (qemu-system-x86|user-mode-linux), debootstrap.*\n.*apt-get install/);
    assert.equal(code, 1);
  });
});
