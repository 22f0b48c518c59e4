import { createFakeClock, type FakeClock } from '../../base/fake-clock.ts';
import { OpError } from '../../base/errors.ts';
import type { ExecResult } from '../../base/exec.ts';
import { FakeSet } from './fake-set.ts';
import { DROP_IN, PROGRAM, UNIT } from './look.ts';
import type { Place } from './place.ts';
import { LABEL } from './proxy-set.ts';

const OURS = 'v1.37.2+nodelet.0.1';
const UPSTREAM = 'v1.37.2';
const UNIT_FILE = '/etc/systemd/system/kubelet.service';
const KUBEADM = '/etc/systemd/system/kubelet.service.d/10-kubeadm.conf';

/** What of a node and its cluster a swap may change; two that are equal are a node that nobody touched. */
export interface FakeState {
  readonly files: Readonly<Record<string, string>>;
  readonly kubelet: string;
  readonly proxyUnit: boolean;
  readonly labels: Readonly<Record<string, string | null>>;
  readonly daemonSet: unknown;
  readonly containers: readonly string[];
}

/**
 * A node of a cluster without Docker: files, a unit that runs what its loaded files say, the Node object, the DaemonSet
 * kube-proxy. Commands it does not know are errors.
 */
export class FakePlace implements Place {
  readonly node = 'k-worker';
  readonly cluster = 'k';
  role = 'worker';
  readonly controlPlane = 'k-control-plane';
  readonly clock: FakeClock = createFakeClock();
  readonly engine: Place['engine'];
  /** Each command that was given, in order. */
  readonly calls: string[] = [];
  /** Called before the call with this number, from 1; what it throws is that call's failure. */
  onCall: (count: number, words: string) => void = () => undefined;
  /** How our kubelet behaves in this node. */
  ours: 'well' | 'dies' = 'well';
  upstream: 'well' | 'dies' = 'well';
  readonly #abort = new AbortController();
  readonly #files = new Map<string, string>([
    [UNIT_FILE, '[Service]\nExecStart=/usr/bin/kubelet\n'],
    [KUBEADM, '[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n'],
    ['/usr/bin/kubelet', 'upstream'],
  ]);
  /** kube-proxy's, with a pod on each of two workers. */
  readonly set = new FakeSet(['k-worker', 'k-worker2']);
  readonly #watchers = new Set<(line: string) => void>();
  readonly #containers = ['c1', 'c2'];
  #isLoaded = false;
  #running = UPSTREAM;
  #told = UPSTREAM;
  #restarts = 0;
  #pid = 100;
  #proxyUnit = false;

  constructor() {
    this.engine = { env: {}, signal: this.#abort.signal };
  }

  /** What Ctrl-C does. */
  stop(): void {
    this.#abort.abort(new OpError('aborted', 'test', 'stopped by the caller'));
  }

  get state(): FakeState {
    return structuredClone({
      files: Object.fromEntries(this.#files),
      kubelet: this.#running,
      proxyUnit: this.#proxyUnit,
      labels: Object.fromEntries(this.set.nodes),
      daemonSet: this.set.tree,
      containers: this.#containers,
    });
  }

  setFile(path: string, text: string | null): void {
    if (text === null) this.#files.delete(path);
    else this.#files.set(path, text);
  }

  unstoppable(): Place {
    const { node, cluster, role, controlPlane, clock } = this;
    return {
      ...{ node, cluster, role, controlPlane, clock, engine: { env: {}, signal: new AbortController().signal } },
      ask: (argv, options) => this.ask(argv, options),
      inside: (argv, options) => this.inside(argv, options),
      kubectl: (args) => this.kubectl(args),
      copy: (from, to) => this.copy(from, to),
      write: (path, text) => this.write(path, text),
      watch: (onStatus) => this.watch(onStatus),
      unstoppable: () => this.unstoppable(),
    };
  }

  async ask(argv: readonly string[], options: { input?: string } = {}): Promise<ExecResult> {
    await this.#call(argv.join(' '));
    return this.#run(argv, options.input);
  }

  async inside(argv: readonly string[], options: { input?: string } = {}): Promise<string> {
    const { code, stdout, stderr } = await this.ask(argv, options);
    if (code !== 0) throw new OpError('failed', `${argv[0] ?? ''} in ${this.node}`, stderr);
    return stdout;
  }

  async copy(_from: string, to: string): Promise<void> {
    await this.#call(`copy ${to}`);
    this.#files.set(to, 'release');
  }

  async write(path: string, text: string): Promise<void> {
    await this.#call(`write ${path}`);
    this.#files.set(path, text);
  }

  watch(onStatus: (line: string) => void): AsyncDisposable {
    this.#watchers.add(onStatus);
    queueMicrotask(() => onStatus(this.#status()));
    return { [Symbol.asyncDispose]: () => Promise.resolve(void this.#watchers.delete(onStatus)) };
  }

  async kubectl(args: readonly string[]): Promise<string> {
    const words = args.join(' ');
    await this.#call(`kubectl ${words}`);
    const patch = /--patch=(.*)$/.exec(words)?.[1];
    if (words.startsWith('get node ')) return JSON.stringify({ status: JSON.parse(this.#status()) as object });
    if (words.startsWith('get lease ')) return new Date(this.clock.nowMs()).toISOString();
    if (words.startsWith('get --namespace=kube-system daemonset/kube-proxy')) return this.set.toJson();
    if (words.startsWith('get controllerrevisions ')) return JSON.stringify({ items: this.set.revisions });
    if (words.startsWith('get --namespace=kube-system configmap/kube-proxy')) {
      const data = { 'config.conf': '{"mode":"iptables"}', 'kubeconfig.conf': '{"clusters":[{"cluster":{"server":"https://k:6443"}}]}' };
      return JSON.stringify({ data });
    }
    if (words.startsWith('create token ')) return 'token';
    if (words.startsWith('get nodes ')) return [...this.set.nodes].flatMap(([node, value]) => (value === null ? [] : [`node/${node}\n`])).join('');
    const [, hash] = /^get pods .*,controller-revision-hash=(\w+) --output=name$/.exec(words) ?? [];
    if (hash !== undefined) return this.set.pods.flatMap((pod) => (pod.hash === hash ? [`pod/of-${pod.node}\n`] : [])).join('');
    if (words.startsWith('get pods ')) return this.#hasProxyPod() ? 'True' : '';
    if (words.startsWith('patch --namespace=kube-system daemonset/kube-proxy') && patch !== undefined) {
      this.set.patch(patch);
      return '';
    }
    const [, pods = '', to] = /^label --namespace=kube-system (.*) controller-revision-hash=(\w+) --overwrite$/.exec(words) ?? [];
    const [, value] = /^label node k-worker nodelet\.dev\/proxy=(\w+)/.exec(words) ?? [];
    if (to !== undefined)
      this.set.relabel(
        pods.split(' ').map((name) => name.replace('pod/of-', '')),
        to,
      );
    else if (value !== undefined) this.set.label(this.node, value);
    else if (words === `label node ${this.node} ${LABEL}-`) this.set.label(this.node, null);
    else throw new Error(`the fake knows no kubectl ${words}`);
    return '';
  }

  async #call(words: string): Promise<void> {
    this.calls.push(words);
    this.onCall(this.calls.length, words);
    await this.clock.sleep(10);
  }

  #hasProxyPod(): boolean {
    return this.set.pods.some(({ node }) => node === this.node);
  }

  #status(): string {
    return JSON.stringify({ conditions: [{ type: 'Ready', status: 'True' }], nodeInfo: { kubeletVersion: this.#told } });
  }

  #run(argv: readonly string[], input: string | undefined): ExecResult {
    const good = (stdout = ''): ExecResult => ({ code: 0, stdout, stderr: '' });
    const bad = (stderr: string): ExecResult => ({ code: 1, stdout: '', stderr });
    const [program = '', ...rest] = argv;
    const paths = rest.filter((word) => word.startsWith('/'));
    if (input !== undefined) return bad('nothing is asked with input here');
    switch (program) {
      case 'uname':
        return good(process.arch === 'arm64' ? 'aarch64\n' : 'x86_64\n');
      case 'cat': {
        const texts = paths.map((path) => this.#files.get(path));
        return texts.includes(undefined) ? bad('cat: no such file') : good(texts.join('\n'));
      }
      case 'test':
        return this.#files.has(paths[0] ?? '') ? good() : bad('');
      case 'rm':
        for (const path of paths) for (const name of this.#files.keys()) if (name === path || name.startsWith(`${path}/`)) this.#files.delete(name);
        return good();
      case 'ln':
        this.#files.set(paths[0] ?? '', `-> ${rest[1] ?? ''}`);
        return good();
      case 'crictl':
        return good(JSON.stringify({ containers: this.#containers.map((id) => ({ id, metadata: { name: id }, labels: {} })) }));
      case 'journalctl':
        return good('it cannot run here');
      case 'curl':
        return this.#proxyUnit ? good() : bad('refused');
      case 'sh':
        if (rest.join(' ').includes('rmdir')) return this.#run(['rm', '-f', rest[2] ?? ''], undefined);
        if (rest.join(' ').includes('nft')) return this.#nft(rest.join(' '));
        if (rest.join(' ').includes('10249')) return this.#hasProxyPod() ? good('kubeproxy_sync_proxy_rules_last_timestamp_seconds 1') : bad('refused');
        return this.#answers() ? good(`okMainPID=${this.#pid}`) : bad('refused');
      case 'systemctl':
        return this.#systemctl(rest.join(' ')) ?? bad(`the fake knows no systemctl ${rest.join(' ')}`);
      case PROGRAM:
        this.#files.set('/var/lib/nodelet/releases/0/bin/node', 'node');
        return good();
      default:
        return bad(`the fake knows no ${program}`);
    }
  }

  /** A copy of the table is a file here: what stands in must be gone in the end. */
  #nft(words: string): ExecResult {
    this.#files.delete('nft nodelet-handover');
    if (words.includes('nft -f')) this.#files.set('nft nodelet-handover', this.set.nodes.get(this.node) ?? '');
    return { code: 0, stdout: '', stderr: '' };
  }

  #answers(): boolean {
    return (this.#running === OURS ? this.ours : this.upstream) === 'well';
  }

  #systemctl(words: string): ExecResult | null {
    const good = (stdout = ''): ExecResult => ({ code: 0, stdout, stderr: '' });
    const drops = [KUBEADM, ...[...this.#files.keys()].filter((path) => path.startsWith(`/etc/systemd/system/${UNIT}.d/`) && path !== KUBEADM)];
    const isOurs = this.#files.has(DROP_IN);
    if (words.startsWith(`show ${UNIT} --property=LoadState`))
      return good(`LoadState=loaded\nActiveState=active\nMainPID=${this.#pid}\nFragmentPath=${UNIT_FILE}\nDropInPaths=${drops.join(' ')}\n`);
    if (words === `show ${UNIT} --property=NRestarts`) {
      this.#restarts += this.#answers() ? 0 : 1;
      return good(`NRestarts=${this.#restarts}\n`);
    }
    if (words === 'daemon-reload') this.#isLoaded = isOurs;
    else if (words === `restart ${UNIT}`) {
      this.#running = this.#isLoaded ? OURS : UPSTREAM;
      this.#pid += 1;
      this.#restarts = 0;
      if (this.#answers()) this.#told = this.#running;
      for (const tell of this.#watchers) tell(this.#status());
    } else if (words === 'enable --now nodelet-proxy.service') this.#proxyUnit = true;
    else if (words === 'disable --now nodelet-proxy.service') this.#proxyUnit = false;
    else if (words !== `reset-failed ${UNIT}`) return null;
    return good();
  }
}
