/** What the kernel counts of one network interface. */
export interface LinkFacts {
  readonly name: string;
  readonly rxBytes: number;
  readonly rxPackets: number;
  readonly rxErrors: number;
  readonly rxDropped: number;
  readonly txBytes: number;
  readonly txPackets: number;
  readonly txErrors: number;
  readonly txDropped: number;
}

/** Interfaces that upstream leaves out: loopback, and the node's ends of pods' links. */
const LEFT_OUT = ['lo', 'veth', 'docker', 'nerdctl'];

/** The interfaces of /proc/<pid>/net/dev (proc(5)) that upstream's kubelet tells of. */
export function linksOf(text: string): LinkFacts[] {
  return text
    .split('\n')
    .slice(2)
    .flatMap((line) => {
      const [, name = '', rest = ''] = /^\s*([^:]+):\s*(.*)$/.exec(line) ?? [];
      if (name === '' || LEFT_OUT.some((prefix) => name.toLowerCase().startsWith(prefix))) return [];
      const [rxBytes = 0, rxPackets = 0, rxErrors = 0, rxDropped = 0, , , , , txBytes = 0, txPackets = 0, txErrors = 0, txDropped = 0] = rest
        .split(/\s+/)
        .map(Number);
      return [{ name, rxBytes, rxPackets, rxErrors, rxDropped, txBytes, txPackets, txErrors, txDropped }];
    });
}
