/** Kernel parameters that the kubelet expects (upstream's pkg/util/sysctl): a machine that is short of memory or has a fault ends and starts anew. */
export const kernelDefaults: Readonly<Record<string, number>> = {
  'vm/overcommit_memory': 1,
  'vm/panic_on_oom': 0,
  'kernel/panic': 10,
  'kernel/panic_on_oops': 1,
  'kernel/keys/root_maxkeys': 1_000_000,
  'kernel/keys/root_maxbytes': 25_000_000,
};

/** In upstream's words, what `protectKernelDefaults` refuses to start with. `read`: what the files say; null: there is none. */
export function kernelProblems(read: (name: string) => string | null): string[] {
  return Object.entries(kernelDefaults).flatMap(([name, wanted]) => {
    const actual = read(name)?.trim() ?? '';
    return actual === String(wanted) ? [] : [`invalid kernel flag: ${name}, expected value: ${wanted}, actual value: ${actual === '' ? 'none' : actual}`];
  });
}
