import { Command, CommanderError, Option } from 'commander';
import type { Host } from '../../base/host.ts';
import { createContext, type CommonOptions, type Context } from './context.ts';
import { version } from '../../base/version.ts';
import { OUTSIDE, PROVING } from './develop.ts';

function collect(value: string, before: string[]): string[] {
  return [...before, value];
}

function commandTable(host: Host, done: (code: number) => void): Command {
  const program = new Command('nodelet')
    .description('A Kubernetes node that runs real containers')
    .version(`nodelet ${version}`)
    .exitOverride()
    .enablePositionalOptions()
    .configureOutput({ writeOut: host.stdout, writeErr: host.stderr })
    .addHelpText(
      'after',
      `\nExamples:\n  sudo ./nodelet up examples/web.yaml        a control plane, a node, and a Deployment on it\n  sudo ./nodelet kubectl get pods -o wide    kubectl with this set's kubeconfig\n  sudo ./nodelet exec -- crictl ps           a command in the node's namespaces\n  sudo ./nodelet down                        everything gone, nothing left\n  sudo ./nodelet test                        all tests this machine can run\n\nDaemons (each has its own --help): agent, netfilter, control, cni`,
    );
  const action =
    (run: (context: Context, ...rest: never[]) => Promise<number>) =>
    async (...all: unknown[]): Promise<void> => {
      const command = all.at(-1) as Command;
      done(await run(createContext(host, command.optsWithGlobals<CommonOptions>()), ...(all.slice(0, -1) as never[])));
    };
  const add = (name: string, summary: string, examples: readonly string[], parent: Command = program): Command =>
    parent
      .command(name)
      .description(summary)
      .addOption(new Option('--name <name>', 'which set, when several run side by side').default('default'))
      .addOption(new Option('--json', 'print the answer as JSON').default(false))
      .addHelpText('after', `\nExamples:\n${examples.map((line) => `  ${line}`).join('\n')}`);

  add('up [manifest]', 'start a control plane and nodes, apply the manifest, wait until its pods are ready', [
    'sudo ./nodelet up examples/web.yaml',
    'sudo ./nodelet up --nodes 2',
    'sudo ./nodelet up --name second --json',
    'sudo ./nodelet up --control-plane real      # kube-apiserver, etcd … from PATH or NODELET_ASSETS',
  ])
    .option('--nodes <count>', 'how many nodes; 1 when left out')
    .addOption(new Option('--control-plane <kind>', 'which control plane').choices(['embedded', 'real']))
    .addOption(new Option('--proxy <mode>', 'what the service proxy writes; nftables when left out').choices(['nftables', 'iptables']))
    .addOption(
      new Option('--cni <plugins>', 'whose pod network: ours, or the reference plugins ptp, host-local and portmap; ours for a new set').choices([
        'nodelet',
        'reference',
      ]),
    )
    .option('--containerd <path>', 'a containerd (binary or its folder) instead of the distribution’s')
    .option('--subnet <cidr>', 'addresses of control plane and nodes, a /24')
    .option('--pod-cidr <cidr>', 'addresses of pods, a /16')
    .option('--service-cidr <cidr>', 'addresses of Services, a /16')
    .option('--timeout <seconds>', 'how long to wait for the manifest’s pods; what comes before them waits longer in proportion', '120')
    .action(
      action(async (context, manifest: string | undefined, options: { proxy?: 'nftables' | 'iptables'; timeout: string }) =>
        (await import('./up.ts')).up(context, manifest, options.proxy === undefined ? options : { ...options, proxies: [options.proxy] }),
      ),
    );
  add('down', 'end a set and remove all of it', ['sudo ./nodelet down', 'sudo ./nodelet down --name second']).action(
    action(async (context) => (await import('./down.ts')).down(context)),
  );
  add('status', 'what runs: nodes, processes, memory', ['sudo ./nodelet status', 'sudo ./nodelet status --json']).action(
    action(async (context) => (await import('./status.ts')).status(context)),
  );
  add('kubectl [args...]', 'kubectl with the kubeconfig of the set', ['sudo ./nodelet kubectl get pods -A', 'sudo ./nodelet kubectl --name second get nodes'])
    .allowUnknownOption()
    .passThroughOptions()
    .helpOption(false)
    .action(action(async (context, args: string[]) => (await import('./passthrough.ts')).kubectl(context, args)));
  add('logs <which>', 'the log of agent, netfilter, containerd, control or egress', ['sudo ./nodelet logs agent', 'sudo ./nodelet logs control --follow'])
    .option('--node <name>', 'which node')
    .option('-f, --follow', 'go on as the log grows')
    .option('--tail <lines>', 'lines from the end, or all', '100')
    .action(action(async (context, which: string, options: never) => (await import('./passthrough.ts')).logs(context, which, options)));
  add('exec [command...]', 'run a command in the namespaces of a node', [
    'sudo ./nodelet exec -- nft list tables',
    'sudo ./nodelet exec --node node-2 -- ps -ef',
  ])
    .option('--node <name>', 'which node, or "hub"')
    .passThroughOptions()
    .action(action(async (context, command: string[], options: never) => (await import('./passthrough.ts')).execInNode(context, options, command)));
  add('node <action> <node>', 'stop a node as power loss does, or start it again', [
    'sudo ./nodelet node stop node-2',
    'sudo ./nodelet node start node-2',
  ]).action(action(async (context, what: string, node: string) => (await import('./power.ts')).power(context, what, node)));
  add('doctor', 'what this machine has and lacks', ['./nodelet doctor', './nodelet doctor --json'])
    .option('--containerd <path>', 'a containerd instead of the distribution’s')
    .action(action(async (context, options: never) => (await import('./doctor.ts')).doctor(context, options)));
  const image = program
    .command('image')
    .description('make images on this machine, without a registry')
    .addHelpText('after', '\nExample:\n  ./nodelet image make nginx:1.29 --from server');
  const addImage = (name: string, summary: string): Command =>
    add(
      name,
      summary,
      [
        './nodelet image make nginx:1.29 --from server',
        './nodelet image make my/tool:1 --from busybox --file ./tool:/bin/tool:0755 --cmd /bin/tool',
        './nodelet image list',
      ],
      image,
    );
  addImage('make <image>', 'make an image under a name; nodes pull it as from a registry')
    .option('--from <recipe>', 'pause, busybox, server or scratch', 'busybox')
    .option('--file <from:/path[:mode]>', 'add a file', collect, [])
    .option('--cmd <command>', 'what runs; a JSON list, or text for a shell')
    .option('--entrypoint <command>', 'entry point; a JSON list, or text for a shell')
    .option('--env <name=value>', 'environment', collect, [])
    .option('--user <user>', 'user it runs as')
    .option('--stop-signal <signal>', 'signal that ends it')
    .action(action(async (context, name: string, options: never) => (await import('./image.ts')).imageMake(context, name, options)));
  addImage('list', 'images that were made here').action(action(async (context) => (await import('./image.ts')).imageList(context)));
  addImage('remove <image>', 'forget an image').action(action(async (context, name: string) => (await import('./image.ts')).imageRemove(context, name)));
  add('test [suites...]', 'check the code, then run every suite this machine can run', ['sudo ./nodelet test', 'sudo ./nodelet test node netfilter']).action(
    action(async (context, suites: string[]) => (await import('./develop.ts')).test(context, suites)),
  );
  add(
    'bench [what] [args...]',
    'measure: event-loop delay of a running set’s agent with 30 pods under churn (loop), the pod network beside the reference plugins (cni), the service proxy beside upstream’s (netfilter; its options after --)',
    ['sudo ./nodelet bench loop', 'sudo ./nodelet bench cni', 'sudo ./nodelet bench netfilter -- --services 1000 --endpoints 2'],
  )
    .option('--pods <count>', 'how many pods', '30')
    .option('--seconds <count>', 'how long pods are deleted', '60')
    .option('--count <rounds>', 'of cni: how many pods each', '100')
    .action(
      action(async (context, what: string | undefined, more: string[], options: never) => (await import('./develop.ts')).bench(context, what, more, options)),
    );
  for (const [name, summary] of Object.entries({ ...PROVING, ...OUTSIDE })) {
    program
      .command(`${name} [args...]`)
      .description(summary)
      .allowUnknownOption()
      .passThroughOptions()
      .helpOption(false)
      .action(
        action(async (context, args: string[]) =>
          (await import('./develop.ts')).proving({ ...context, options: { name: 'default', json: false } }, name, args),
        ),
      );
  }
  program
    .command('cri [args...]')
    .description('see what a kubelet and its container runtime say to each other: tap, record, show')
    .allowUnknownOption()
    .passThroughOptions()
    .helpOption(false)
    .action(async (args: string[]) => done(await (await import('./cri.ts')).cri(host, args)));
  return program;
}

/** Runs the command of `host.args`; a wrong command line is 2, help is 0. Throws what a command throws. */
export async function runCommand(host: Host): Promise<number> {
  let code = 0;
  const program = commandTable(host, (value) => {
    code = value;
  });
  try {
    await program.parseAsync([...host.args], { from: 'user' });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    throw error;
  }
}
