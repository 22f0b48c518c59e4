import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../set.ts';
import { box, Cases, IMAGE, logMount, NAMESPACE, shell, skip, statusOf, untilTerm } from './world.ts';

/* What containers find in their files and environment, on one real set. */
let at: Cases;
before(async () => {
  if (skip === false) at = await Cases.open('kc-files');
});
after(() => at?.[Symbol.asyncDispose]());

const nodeFile = (path: string): string => readFileSync(at.path(path), 'utf8');

describe('files and environment of containers', { skip, concurrency: true, timeout: 240_000 }, () => {
  test('KB-24: a subPath of a changed ConfigMap keeps its file, and a restart takes the new one', async () => {
    await at.configMap('kb24', { 'one.ini': 'v1\n' });
    const config = { name: 'c', configMap: { name: 'kb24' } };
    await at.create('kb24', {
      terminationGracePeriodSeconds: 1,
      containers: [
        box('m', shell('cat /etc/one.ini >> /log/seen; exec sleep 3601'), {
          volumeMounts: [{ name: 'c', mountPath: '/etc/one.ini', subPath: 'one.ini' }, { name: 'c', mountPath: '/whole' }, logMount],
        }),
      ],
      volumes: [config],
    });
    const { metadata } = await at.ready('kb24');
    const subPaths = `/var/lib/kubelet/pods/${metadata?.uid}/volume-subpaths`;
    assert.equal(at.mounts(subPaths).length, 1);
    await at.k('patch', 'configmap', 'kb24', '-p', '{"data":{"one.ini":"v2\\n"}}');
    await eventually('the whole volume changes', 150_000, async () => ((await at.k('exec', 'kb24', '--', 'cat', '/whole/one.ini')) === 'v2' ? true : null));
    assert.equal(await at.k('exec', 'kb24', '--', 'cat', '/etc/one.ini'), 'v1');
    await at.inNode('sh', '-c', 'kill -9 $(pgrep -fx "sleep 3601")');
    await at.watch.pod('kb24', 'restarted', 60_000, (pod) => statusOf(pod)?.restartCount === 1 && statusOf(pod)?.ready);
    assert.deepEqual(at.log('kb24', 'seen'), ['v1', 'v2']);
    assert.equal(at.mounts(subPaths).length, 1);
    await at.remove('kb24');
    await at.watch.gone('kb24', 30_000);
    assert.deepEqual(at.mounts(`/var/lib/kubelet/pods/${metadata?.uid}`), []);
  });

  test('KB-24: a subPathExpr gives the path of its own pod', async () => {
    await at.create('kb24-expr', {
      terminationGracePeriodSeconds: 1,
      containers: [
        box('m', untilTerm('exit 0', 'echo here > /d/file'), {
          env: [{ name: 'POD', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
          volumeMounts: [{ name: 'log', mountPath: '/d', subPathExpr: 'of-$(POD)' }],
        }),
      ],
    });
    await at.ready('kb24-expr');
    await eventually('the file', 10_000, async () => (at.log('kb24-expr', 'of-kb24-expr/file')[0] === 'here' ? true : null));
    await at.remove('kb24-expr');
  });

  test('a hostPath is mounted by its type, or refused by it in upstream’s words; nobody waits for volumes that no container uses', async () => {
    await at.inNode(
      'sh',
      '-c',
      'mkdir -p /run/kinds/dir && cd /run/kinds && echo f > file && mknod char c 1 3 && mknod block b 7 250 && ln -s /run/containerd/containerd.sock sock',
    );
    const host = (name: string, path: string, type: string) => ({ name, hostPath: { path: `/run/kinds/${path}`, type } });
    const good = [
      host('dir', 'dir', 'Directory'),
      host('new-dir', 'new/dir', 'DirectoryOrCreate'),
      host('file', 'file', 'File'),
      host('new-file', 'new-file', 'FileOrCreate'),
      host('char', 'char', 'CharDevice'),
      host('block', 'block', 'BlockDevice'),
      host('sock', 'sock', 'Socket'),
      host('any', 'any', ''),
    ];
    const using = (volumes: readonly { name: string }[]) => volumes.map(({ name }) => ({ name, mountPath: `/k/${name}` }));
    await at.create('kinds', {
      terminationGracePeriodSeconds: 1,
      containers: [box('m', untilTerm('exit 0', 'stat -c "%n %F %a" /k/* > /log/seen'), { volumeMounts: [...using(good), logMount] })],
      volumes: [...good, { name: 'unused', secret: { secretName: 'never-there' } }],
    });
    const bad = [
      host('b1', 'file', 'Directory'),
      host('b2', 'file', 'DirectoryOrCreate'),
      host('b3', 'dir', 'FileOrCreate'),
      host('b4', 'none', 'File'),
      host('b5', 'file', 'Socket'),
      host('b6', 'block', 'CharDevice'),
      host('b7', 'char', 'BlockDevice'),
      { name: 'b8', emptyDir: { medium: 'HugePages-2Mi' } },
    ];
    await at.create('kinds-bad', { containers: [box('m', untilTerm('exit 0'), { volumeMounts: using(bad) })], volumes: bad });
    await at.create('kinds-expr', {
      terminationGracePeriodSeconds: 1,
      containers: [box('m', untilTerm('exit 0'), { volumeMounts: [{ name: 'e', mountPath: '/e', subPathExpr: '$(NO)-$(ALSO)' }] })],
      volumes: [{ name: 'e', emptyDir: {} }],
    });
    await at.ready('kinds');
    await at.watch.until('the kinds', 20_000, () => at.log('kinds', 'seen').length === 8);
    assert.deepEqual(at.log('kinds', 'seen'), [
      '/k/any directory 755',
      '/k/block block special file 644',
      '/k/char character special file 644',
      '/k/dir directory 755',
      '/k/file regular file 644',
      '/k/new-dir directory 755',
      '/k/new-file regular empty file 644',
      '/k/sock socket 660',
    ]);
    const wrong = [
      "b1: hostPath type check failed: /run/kinds/file is not a directory, it's a File",
      "b2: hostPath type check failed: /run/kinds/file is not a directory, it's a File",
      "b3: hostPath type check failed: /run/kinds/dir is not a file, it's a Directory",
      'b4: hostPath type check failed, /run/kinds/none is not a file, unable to determine its type: path "/run/kinds/none" does not exist',
      "b5: hostPath type check failed: /run/kinds/file is not a socket file, it's a File",
      "b6: hostPath type check failed: /run/kinds/block is not a character device, it's a BlockDevice",
      "b7: hostPath type check failed: /run/kinds/char is not a block device, it's a CharDevice",
      'b8: medium HugePages-2Mi: hugePages storage requested, but there is no resource request for huge pages',
    ];
    const said = async (): Promise<string[]> => {
      const events = JSON.parse(await at.k('get', 'events', '--field-selector', 'involvedObject.name=kinds-bad', '-o', 'json')) as {
        items: { message: string }[];
      };
      const found = events.items.flatMap(({ message }) => /^MountVolume.SetUp failed for volume "(b\d)" : (.*)$/.exec(message)?.slice(1).join(': ') ?? []);
      return [...new Set(found)].toSorted();
    };
    await eventually('a refusal of each', 60_000, async () => ((await said()).length === wrong.length ? true : null));
    assert.deepEqual(await said(), wrong);
    await at.watch.pod('kinds-expr', 'refused', 30_000, (pod) => statusOf(pod)?.state?.waiting?.message === 'missing value for ALSO, NO');
    for (const name of ['kinds', 'kinds-bad', 'kinds-expr']) await at.remove(name, '--wait=false');
  });

  test('KB-27: a memory emptyDir is as large as the smallest of its limit, the memory limit and the node', async () => {
    const spec = (sizeLimit: string | undefined, memory: string | undefined, before: string) => ({
      terminationGracePeriodSeconds: 1,
      containers: [
        box('m', ['sh', '-c', `${before}; df -k /d | tail -1 | tr -s ' ' | cut -d' ' -f2 >> /log/size; exec sleep 3602`], {
          volumeMounts: [{ name: 'd', mountPath: '/d' }, logMount],
          ...(memory === undefined ? {} : { resources: { limits: { memory } } }),
        }),
      ],
      volumes: [{ name: 'd', emptyDir: { medium: 'Memory', ...(sizeLimit === undefined ? {} : { sizeLimit }) } }],
    });
    await at.create('kb27-limit', spec('32Mi', undefined, 'dd if=/dev/zero of=/d/f bs=1M count=64 2>> /log/said; echo rc=$? >> /log/said'));
    await at.create('kb27-memory', spec('256Mi', '64Mi', 'echo kept >> /d/kept'));
    await at.create('kb27-free', spec(undefined, undefined, 'true'));
    const uids: string[] = [];
    for (const name of ['kb27-limit', 'kb27-memory', 'kb27-free']) uids.push((await at.ready(name)).metadata?.uid ?? '');
    await at.watch.until('the sizes', 20_000, () => ['kb27-limit', 'kb27-memory', 'kb27-free'].every((name) => at.log(name, 'size').length > 0));
    const allocatable = Number((await at.set.k(['get', 'node', 'node-1', '-o', 'jsonpath={.status.allocatable.memory}'])).replace('Ki', ''));
    assert.deepEqual(at.log('kb27-limit', 'size'), ['32768']);
    assert.equal(at.log('kb27-limit', 'said').at(-1), 'rc=1');
    assert.match(at.log('kb27-limit', 'said').join(' '), /No space left on device/);
    assert.deepEqual(at.log('kb27-memory', 'size'), ['65536']);
    assert.deepEqual(at.log('kb27-free', 'size'), [String(allocatable)]);
    await at.cri.runtime.stopContainer({ containerId: (await at.containers('kb27-memory'))[0]?.id ?? '', timeout: '0' });
    await at.watch.pod('kb27-memory', 'restarted', 60_000, (pod) => statusOf(pod)?.restartCount === 1 && statusOf(pod)?.ready);
    assert.equal(await at.k('exec', 'kb27-memory', '--', 'sh', '-c', 'cat /d/kept | wc -l'), '2', 'files outlive the container');
    await at.k('delete', 'pod', '--wait=false', 'kb27-limit', 'kb27-memory', 'kb27-free');
    for (const [index, name] of ['kb27-limit', 'kb27-memory', 'kb27-free'].entries()) {
      await at.watch.gone(name, 30_000);
      assert.deepEqual(at.mounts(`/var/lib/kubelet/pods/${uids[index]}`), []);
    }
  });

  test('KB-28: resolv.conf by policy, with each search domain once', async () => {
    const path = `${at.folder}/resolv.conf`;
    const before = readFileSync(path, 'utf8');
    writeFileSync(path, 'search svc.cluster.local cluster.local d1.example d2.example d3.example d4.example\nnameserver 192.0.2.1\noptions timeout:2\n');
    const own = { nameservers: ['192.0.2.9'], searches: ['x.example'], options: [{ name: 'ndots', value: '2' }] };
    const spec = (more: object) => ({
      restartPolicy: 'Never',
      containers: [box('m', shell('cat /etc/resolv.conf > /log/r'), { volumeMounts: [logMount] })],
      ...more,
    });
    const pods = {
      'kb28-first': {},
      'kb28-default': { dnsPolicy: 'Default' },
      'kb28-host': { hostNetwork: true },
      'kb28-host-first': { hostNetwork: true, dnsPolicy: 'ClusterFirstWithHostNet' },
      'kb28-none': { dnsPolicy: 'None', dnsConfig: own },
      'kb28-both': { dnsConfig: own },
    };
    try {
      for (const [name, more] of Object.entries(pods)) await at.create(name, spec(more));
      for (const name of Object.keys(pods)) await at.watch.pod(name, 'Succeeded', 60_000, (pod) => pod.status?.phase === 'Succeeded');
    } finally {
      writeFileSync(path, before);
    }
    const dns = (JSON.parse(readFileSync(`${at.folder}/agent.json`, 'utf8')) as { clusterDNS: string[] }).clusterDNS[0];
    const lines = (name: string): Record<string, string> =>
      Object.fromEntries(at.log(name, 'r').map((line) => [line.split(' ')[0] ?? '', line.slice(line.indexOf(' ') + 1)]));
    const search = `${NAMESPACE}.svc.cluster.local svc.cluster.local cluster.local d1.example d2.example d3.example d4.example`;
    const first = lines('kb28-first');
    assert.deepEqual([first['search'], first['nameserver']], [search, dns]);
    assert.match(first['options'] ?? '', /ndots:5/);
    assert.deepEqual(lines('kb28-host-first'), first);
    for (const name of ['kb28-default', 'kb28-host']) {
      assert.deepEqual(lines(name), {
        search: 'svc.cluster.local cluster.local d1.example d2.example d3.example d4.example',
        nameserver: '192.0.2.1',
        options: 'timeout:2',
      });
    }
    assert.deepEqual(at.log('kb28-none', 'r'), ['search x.example', 'nameserver 192.0.2.9', 'options ndots:2']);
    const both = at.log('kb28-both', 'r');
    assert.ok(both.includes(`search ${search} x.example`), both.join('|'));
    assert.deepEqual(
      both.filter((line) => line.startsWith('nameserver')),
      [`nameserver ${dns}`, 'nameserver 192.0.2.9'],
    );
    assert.match(both.at(-1) ?? '', /^options .*ndots:2/);
    assert.doesNotMatch(both.at(-1) ?? '', /ndots:5/);
    // With hostNetwork the policy ClusterFirst cannot be had: that is told, nothing else is.
    for (const name of Object.keys(pods)) assert.ok(!at.watch.eventsOf(name).some((event) => event.reason === 'DNSConfigForming'), name);
    await at.k('delete', 'pod', '--wait=false', ...Object.keys(pods));
  });

  test('KB-29: a variable sees those before it; values from maps and unknown names stay as they are', async () => {
    await at.configMap('kb29', { A: 'one', REF: 'x-$(A)' });
    await at.create('p', {
      restartPolicy: 'Never',
      containers: [
        {
          name: 'm',
          image: IMAGE,
          envFrom: [{ configMapRef: { name: 'kb29' } }],
          env: [
            { name: 'EARLY', value: '$(LATE)' },
            { name: 'LATE', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
            { name: 'AFTER', value: 'n=$(LATE) a=$(A)' },
            { name: 'ESC', value: '$$(A) $(NOPE) $A' },
            { name: 'A', value: 'two' },
            { name: 'LASTA', value: '$(A)' },
          ],
          command: ['sh', '-c', 'env; echo "arg=$0 $1"', '$(LATE)', '$$(LATE)'],
        },
      ],
    });
    await at.watch.pod('p', 'Succeeded', 60_000, (pod) => pod.status?.phase === 'Succeeded');
    const said = (await at.k('logs', 'p')).split('\n');
    for (const line of ['REF=x-$(A)', 'EARLY=$(LATE)', 'LATE=p', 'AFTER=n=p a=one', 'ESC=$(A) $(NOPE) $A', 'A=two', 'LASTA=two'])
      assert.ok(said.includes(line), line);
    assert.equal(said.at(-1), 'arg=p $(LATE)');
    await at.remove('p');
  });

  test('KB-30: the hosts file is written at each container start, also with hostNetwork, and is the pod’s own', async () => {
    const hosts = nodeFile('/etc/hosts');
    const hostAliases = [{ ip: '192.0.2.8', hostnames: ['a.example', 'b.example'] }];
    const containers = [box('m', shell('cat /etc/hosts > /log/hosts; sleep 3600'), { volumeMounts: [logMount] })];
    const end = { terminationGracePeriodSeconds: 1 };
    await at.create('kb30', {
      ...end,
      hostAliases,
      hostname: 'h',
      subdomain: 's',
      initContainers: [box('i', shell('echo 192.0.2.7 mine >> /etc/hosts; cat /etc/hosts > /log/first'), { volumeMounts: [logMount] })],
      containers,
    });
    await at.create('kb30-host', { ...end, hostAliases, hostNetwork: true, containers });
    await at.configMap('kb30', { hosts: '192.0.2.10 own\n' });
    await at.create('kb30-own', {
      ...end,
      hostAliases,
      containers: [
        box('m', shell('cat /etc/hosts > /log/hosts; sleep 3600'), { volumeMounts: [logMount, { name: 'c', mountPath: '/etc/hosts', subPath: 'hosts' }] }),
      ],
      volumes: [{ name: 'c', configMap: { name: 'kb30' } }],
    });
    const one = await at.ready('kb30');
    await at.ready('kb30-host');
    await at.ready('kb30-own');
    await at.watch.until('the hosts files', 20_000, () => ['kb30', 'kb30-host', 'kb30-own'].every((name) => at.log(name, 'hosts').length > 0));
    assert.ok(at.log('kb30', 'first').includes('192.0.2.7 mine'));
    const main = at.log('kb30', 'hosts').map((line) => line.split(/\s+/).join(' '));
    assert.ok(!main.some((line) => line.includes('mine')));
    assert.ok(main.includes('192.0.2.8 a.example b.example'), main.join('|'));
    assert.ok(main.includes(`${one.status?.podIP} h.s.${NAMESPACE}.svc.cluster.local h`), main.join('|'));
    const onHost = at.log('kb30-host', 'hosts');
    for (const line of hosts.split('\n').filter((each) => each !== '')) assert.ok(onHost.includes(line), line);
    assert.ok(onHost.some((line) => line.split(/\s+/).join(' ') === '192.0.2.8 a.example b.example'));
    assert.equal(nodeFile('/etc/hosts'), hosts, 'the file of the node is left alone');
    assert.deepEqual(at.log('kb30-own', 'hosts'), ['192.0.2.10 own']);
    const file = `/var/lib/kubelet/pods/${one.metadata?.uid}/etc-hosts`;
    assert.notEqual(at.file(file), '');
    await at.k('delete', 'pod', '--wait=false', 'kb30', 'kb30-host', 'kb30-own');
    await at.watch.gone('kb30', 30_000);
    await eventually('the file is gone', 30_000, async () => (at.file(file) === '' ? true : null));
  });
});
