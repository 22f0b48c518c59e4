/** `/logs/?query=…`: what a node log query may ask for (KEP-2258), and what journalctl is asked for then. */
export interface NodeLogQuery {
  readonly services: readonly string[];
  readonly files: readonly string[];
  readonly sinceTime: string;
  readonly untilTime: string;
  readonly tailLines: string;
  readonly boot: string;
  readonly pattern: string;
}

const maxTailLines = 100_000;
const maxServices = 4;

/** Null: no query at all, the path counts. Otherwise the query and what is wrong with it, with the status to answer. */
export function readNodeLogQuery(query: {
  get: (key: string) => string | null;
  getAll: (key: string) => readonly string[];
}): { query: NodeLogQuery; status: number; problems: string[] } | null {
  const asked = query.getAll('query');
  const text = (key: string): string => query.get(key) ?? '';
  const read: NodeLogQuery = {
    services: asked.filter((each) => !/[/\\]/.test(each) && each.trim() !== ''),
    files: asked.filter((each) => /[/\\]/.test(each)),
    sinceTime: text('sinceTime'),
    untilTime: text('untilTime'),
    tailLines: text('tailLines'),
    boot: text('boot'),
    pattern: text('pattern'),
  };
  const { services, files, sinceTime, untilTime, tailLines, boot, pattern } = read;
  const malformed: string[] = [];
  if (asked.length > 0 && services.length === 0 && files.length === 0) malformed.push(`query: Invalid value: ${goList(asked)}: may not be empty`);
  if (sinceTime !== '' && Number.isNaN(timeOf(sinceTime))) malformed.push(`sinceTime: Invalid value: "${sinceTime}": invalid time format`);
  if (untilTime !== '' && Number.isNaN(timeOf(untilTime))) malformed.push(`untilTime: Invalid value: "${untilTime}": invalid time format`);
  for (const [key, value] of [
    ['boot', boot],
    ['tailLines', tailLines],
  ] as const)
    if (value !== '' && !/^[+-]?\d{1,18}$/.test(value)) malformed.push(`${key}: Invalid value: "${value}": strconv.Atoi: parsing "${value}": invalid syntax`);
  if (malformed.length > 0) return { query: read, status: 400, problems: malformed };
  const options = [sinceTime, untilTime, tailLines, boot, pattern].some((each) => each !== '');
  if (services.length === 0 && files.length === 0 && !options) return null;

  const refused: string[] = [];
  for (const service of services) {
    if (service.length > 256) refused.push(`query: Invalid value: "${service}": length must be less than 256`);
    // A broad defence: nothing but these may reach journalctl.
    else if (/[^a-zA-Z\-_.:0-9@]/.test(service)) refused.push(`query: Invalid value: "${service}": input contains unsupported characters`);
  }
  if (services.length > maxServices) refused.push(`query: Too many: ${services.length}: must have at most ${maxServices} items`);
  if (services.length === 0 && files.length === 0) refused.push('query: Required value: cannot be empty with options');
  else if (services.length > 0 && files.length > 0)
    refused.push(`query: Invalid value: "[${files.join(' ')}], [${services.join(' ')}]": cannot specify a file and service`);
  else if (files.length > 1) refused.push(`query: Invalid value: ${goList(files)}: cannot specify more than one file`);
  else if (files.length === 1 && options) refused.push(`query: Invalid value: ${goList(files)}: cannot specify file with options`);
  if (sinceTime !== '' && untilTime !== '' && timeOf(sinceTime) > timeOf(untilTime)) refused.push('untilTime: Invalid value: must be after `sinceTime`');
  if (Number(boot) > 0) refused.push(`boot: Invalid value: ${Number(boot)}: must be less than 1`);
  if (tailLines !== '' && (Number(tailLines) < 0 || Number(tailLines) > maxTailLines))
    refused.push(`tailLines: Invalid value: ${Number(tailLines)}: must be between 0 and ${maxTailLines}, inclusive`);
  return { query: read, status: 406, problems: refused };
}

/** `problems` as upstream's aggregate prints them. */
export function aggregated(problems: readonly string[]): string {
  return problems.length === 1 ? (problems[0] ?? '') : `[${problems.join(', ')}]`;
}

/** RFC 3339; NaN is none. */
function timeOf(text: string): number {
  return /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/.test(text) ? Date.parse(text) : Number.NaN;
}

function goList(values: readonly string[]): string {
  return JSON.stringify(values);
}

/** The arguments for journalctl. */
export function journalArguments(query: NodeLogQuery, services: readonly string[]): string[] {
  const at = (text: string): string => {
    const [, date = '', time = ''] = /^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)/.exec(text) ?? [];
    return `${date} ${time}`;
  };
  return [
    'journalctl',
    '--utc',
    '--no-pager',
    '--output=short-precise',
    ...(query.sinceTime === '' ? [] : [`--since=${at(query.sinceTime)}`]),
    ...(query.untilTime === '' ? [] : [`--until=${at(query.untilTime)}`]),
    ...(query.tailLines === '' ? [] : ['--pager-end', `--lines=${Number(query.tailLines)}`]),
    ...services.map((service) => `--unit=${service}`),
    ...(query.pattern === '' ? [] : [`--grep=${query.pattern}`]),
    ...(query.boot === '' ? [] : ['--boot', String(Number(query.boot))]),
  ];
}

/** Where a service that writes no journal may keep its log, below the log folder. */
export function logFileNames(service: string): string[] {
  return [service, `${service}.log`, `${service}/${service}.log`];
}
