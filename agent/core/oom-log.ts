/** A process that the kernel has ended because the machine had no memory left. */
export interface SystemOom {
  readonly process: string;
  readonly pid: number;
}

const begins = /invoked oom-killer:/;
/** Since Linux 5.0; `oom_memcg` is there only when a cgroup was at its limit. */
const ofCgroup = /oom-kill:constraint=.*,oom_memcg=(.*),task_memcg=/;
const ofCgroupBefore = /Task in .* killed as a result of limit of (.*)/;
const ends = /Killed process (\d+) \((.+)\)/;
/** A record begins with its facility and level; the kernel gives itself 0, and programs that write to /dev/kmsg another one. */
const kernelBelow = 8;

/**
 * Reads the kernel's log record by record for what runs out of memory. A cgroup at its limit is its own affair and is told
 * with the container; the machine as a whole is told with the node, as upstream does.
 */
export class OomLog {
  /** The cgroup whose limit was reached in the report under way, '/' while none was named; null: no report is under way. */
  #limited: string | null = null;

  /** `record` as /dev/kmsg gives it: `6,1234,5678,-;text`. Answers with the last record of a report of the whole machine. */
  read(record: string): SystemOom | null {
    if (!(Number.parseInt(record, 10) < kernelBelow)) return null;
    const text = record.slice(record.indexOf(';') + 1).split('\n')[0] ?? '';
    if (begins.test(text)) this.#limited = '/';
    if (this.#limited === null) return null;
    const cgroup = ofCgroup.exec(text) ?? ofCgroupBefore.exec(text);
    if (cgroup !== null) this.#limited = cgroup[1] ?? '';
    const killed = ends.exec(text);
    if (killed === null) return null;
    const isSystem = this.#limited === '/';
    this.#limited = null;
    return isSystem ? { pid: Number(killed[1]), process: killed[2] ?? '' } : null;
  }
}
