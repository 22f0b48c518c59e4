export type EnvFileValue = { readonly ok: true; readonly value: string | null } | { readonly ok: false; readonly line: number; readonly problem: string };

/**
 * The value of one variable in a file of `NAME='value'` lines (KEP-3721): values only in single quotes,
 * taken literally and over several lines; comments and blank lines between them. Null: the file does not set it.
 */
export function envFileValue(text: string, name: string): EnvFileValue {
  const lines = text.split('\n');
  const problem = (index: number, why: string): EnvFileValue => ({ ok: false, line: index + 1, problem: why });
  for (let index = 0; index < lines.length; index += 1) {
    const line = lines[index]!.replace(/^[ \t]+/, '').replace(/\r$/, '');
    if (line === '' || line.startsWith('#')) continue;
    const equals = line.indexOf('=');
    if (equals < 0) return problem(index, "missing '='");
    const key = line.slice(0, equals);
    if (key.trim() === '') return problem(index, 'empty variable name');
    if (key !== key.trimEnd()) return problem(index, "whitespace before '=' is not allowed");
    const raw = line.slice(equals + 1);
    if (/^[ \t]/.test(raw) || raw === '') {
      if (key === name) return { ok: true, value: '' };
      if (raw !== '') continue;
    }
    if (!raw.startsWith("'")) return problem(index, 'value must be enclosed in single quotes');
    const begin = index;
    let value = '';
    let rest = raw.slice(1);
    while (!rest.includes("'")) {
      value += `${rest}\n`;
      index += 1;
      if (index >= lines.length) return problem(begin, 'unclosed single quote');
      rest = lines[index]!;
    }
    value += rest.slice(0, rest.indexOf("'"));
    const after = rest.slice(rest.indexOf("'") + 1).trimStart();
    if (after !== '' && !after.startsWith('#')) return problem(index, 'unexpected content after closing quote');
    if (key === name) return { ok: true, value };
  }
  return { ok: true, value: null };
}
