/** What a program gets from the outside world. Built by the command table alone; nothing else reads argv or env. */
export interface Host {
  /** Arguments after the command's name. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly pid: number;
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Aborted at SIGTERM or SIGINT. */
  readonly signal: AbortSignal;
  /** Whether standard output is a terminal: colours and progress bars only then. */
  readonly isTerminal: boolean;
}
