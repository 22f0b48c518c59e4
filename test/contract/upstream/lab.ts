import { execa, type ResultPromise } from 'execa';
import { connect } from 'node:net';
import { OpError } from '../../../base/errors.ts';
import { eventually } from '../../eventually.ts';

const ROOT = new URL('../../../', import.meta.url).pathname;
const RUNTIME = '/run/containerd/containerd.sock';
/** Where the runtime's own socket is while the tap has its place: it follows its file through a rename. */
const BEHIND = '/run/containerd/containerd.sock.behind';

export interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A cluster of one node, through the commands that a user has. */
export class Lab {
  readonly name: string;
  readonly #signal: AbortSignal;
  readonly #kubectl: string;
  #kubeconfig = '';
  /** Set by who uses the lab, when what was recorded is of no use. */
  failing = false;
  node = { name: '', ip: '', pid: 0, directory: '' };

  /** @param kubectl the program: each call through the launcher would look at all sources first */
  constructor(name: string, kubectl: string, signal: AbortSignal) {
    this.name = name;
    this.#kubectl = kubectl;
    this.#signal = signal;
  }

  async run(argv: readonly string[], options: { input?: string; timeoutMs?: number } = {}): Promise<Answer> {
    const result = await execa(argv[0] ?? '', argv.slice(1), {
      reject: false,
      cancelSignal: this.#signal,
      timeout: options.timeoutMs ?? 60_000,
      ...(options.input === undefined ? { stdin: 'ignore' as const } : { input: options.input }),
    });
    return { code: result.exitCode ?? -1, out: result.stdout, err: result.stderr };
  }

  async #must(argv: readonly string[], options: { input?: string; timeoutMs?: number } = {}): Promise<string> {
    const { code, out, err } = await this.run(argv, options);
    if (code !== 0)
      throw new OpError(this.#signal.aborted ? 'aborted' : 'failed', `run ${argv.slice(0, 6).join(' ')}`, err.trim().slice(-500) || `it ended with ${code}`);
    return out;
  }

  /** @param agent whose kubelet; of several nodes, one each with commas */
  async up(agent: string): Promise<void> {
    await this.#must([`${ROOT}nodelet`, 'cluster', 'up', '--name', this.name, '--agent', agent, '--audit'], { timeoutMs: 600_000 });
    await this.find();
  }

  async find(): Promise<void> {
    const { nodes, kubeconfig } = JSON.parse(await this.#must([`${ROOT}nodelet`, 'status', '--name', this.name, '--json'])) as {
      nodes: Lab['node'][];
      kubeconfig: string;
    };
    const [node] = nodes;
    if (node === undefined) throw new OpError('not-found', `find the node of ${this.name}`, 'there is none');
    this.node = node;
    this.#kubeconfig = kubeconfig;
  }

  async down(): Promise<void> {
    await execa(`${ROOT}nodelet`, ['cluster', 'down', '--name', this.name], { reject: false, timeout: 120_000, stdin: 'ignore' });
  }

  kubectl(args: readonly string[], input?: string): Promise<string> {
    return this.#must([this.#kubectl, '--kubeconfig', this.#kubeconfig, ...args], input === undefined ? {} : { input });
  }

  async get<T>(args: readonly string[]): Promise<T> {
    return JSON.parse(await this.kubectl(['get', '-o', 'json', ...args])) as T;
  }

  nodelet(args: readonly string[]): Promise<string> {
    return this.#must([`${ROOT}nodelet`, ...args], { timeoutMs: 120_000 });
  }

  /** A shell script in the node's namespaces. */
  inNode(script: string): Promise<string> {
    return this.#must([...this.#enter(), 'sh', '-c', script]);
  }

  #enter(): string[] {
    return [`${ROOT}dist/sys`, 'exec', '--pid', String(this.node.pid), '--'];
  }

  /** `eventually`, for as long as the lab is used. */
  until<T>(what: string, look: () => Promise<T | null>, limitMs: number): Promise<T> {
    return eventually(what, limitMs, look, { everyMs: 250, signal: this.#signal });
  }

  async #tellInit(line: string): Promise<void> {
    const socket = connect(`${this.node.directory}/init.ctl`);
    socket.write(`${line}\n`);
    let answer = '';
    for await (const chunk of socket) answer += String(chunk);
    if (!answer.startsWith('ok')) throw new OpError('failed', `tell the node's init "${line}"`, answer.trim());
  }

  /** Takes the runtime's path for a tap that records to `file`, and lets the kubelet come again over it. */
  async tap(file: string, agent: 'ours' | 'upstream'): Promise<AsyncDisposable> {
    await this.inNode(`mv ${RUNTIME} ${BEHIND}`);
    const words = ['cri', 'tap', '--listen', RUNTIME, '--upstream', BEHIND, '--record', file, '--with-secrets', '--quiet'];
    const running: ResultPromise = execa(this.#enter()[0] ?? '', [...this.#enter().slice(1), process.execPath, `${ROOT}dist/nodelet.mjs`, ...words], {
      reject: false,
      stdin: 'ignore',
    });
    const end = async (): Promise<Awaited<typeof running>> => {
      running.kill('SIGTERM');
      const ended = await running;
      await execa(this.#enter()[0] ?? '', [...this.#enter().slice(1), 'mv', BEHIND, RUNTIME], { reject: false });
      return ended;
    };
    try {
      await this.until('the tap', async () => ((await this.inNode(`test -S ${RUNTIME}`)) === '' ? true : null), 20_000);
      await this.#tellInit(`restart ${agent === 'ours' ? 'agent' : 'kubelet'}`);
    } catch (error) {
      // The cluster may be somebody's who goes on with it.
      await end();
      throw error;
    }
    return {
      [Symbol.asyncDispose]: async () => {
        const { exitCode, stderr } = await end();
        // While something else has failed already, that is what is told.
        const complete = exitCode === 0 && / calls/.test(String(stderr)) && !/not followed/.test(String(stderr));
        if (!complete && !this.failing) throw new OpError('failed', 'record the runtime’s calls', String(stderr).trim().slice(-500));
      },
    };
  }
}
