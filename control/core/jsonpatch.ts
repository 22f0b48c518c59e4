import { Failure } from './failure.ts';
import { copy, isObject, same } from './json.ts';
import type { Obj } from './json.ts';

function refuse(message: string): never {
  throw new Failure(422, 'Invalid', 'the server rejected our request due to an error in our request', {
    causes: [{ reason: 'UnexpectedServerResponse', message }],
  });
}

function parts(pointer: unknown): string[] {
  if (typeof pointer !== 'string' || (pointer !== '' && !pointer.startsWith('/'))) refuse(`invalid path ${JSON.stringify(pointer)}`);
  return pointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function step(node: unknown, part: string, pointer: string): unknown {
  if (Array.isArray(node)) {
    const at = index(part, node.length - 1, pointer);
    return node[at];
  }
  if (isObject(node) && Object.hasOwn(node, part)) return node[part];
  return refuse(`doc is missing path: ${pointer}: missing value`);
}

function index(part: string, last: number, pointer: string): number {
  const at = /^(0|[1-9]\d*)$/.test(part) ? Number(part) : -1;
  if (at < 0 || at > last) refuse(`Unable to access invalid index: ${part} in ${pointer}`);
  return at;
}

function find(root: unknown, path: readonly string[], pointer: string): unknown {
  let node = root;
  for (const part of path) node = step(node, part, pointer);
  return node;
}

function put(holder: { root: unknown }, pointer: string, value: unknown, mode: 'add' | 'replace'): void {
  const path = parts(pointer);
  const last = path.pop();
  if (last === undefined) {
    holder.root = value;
    return;
  }
  const parent = find(holder.root, path, pointer);
  if (Array.isArray(parent)) {
    if (mode === 'replace') parent[index(last, parent.length - 1, pointer)] = value;
    else if (last === '-') parent.push(value);
    else parent.splice(index(last, parent.length, pointer), 0, value);
  } else if (isObject(parent)) {
    if (mode === 'replace' && !Object.hasOwn(parent, last)) refuse(`replace operation does not apply: doc is missing key: ${pointer}: missing value`);
    parent[last] = value;
  } else refuse(`add operation does not apply: doc is missing path: ${pointer}: missing value`);
}

function take(holder: { root: unknown }, pointer: string): unknown {
  const path = parts(pointer);
  const last = path.pop();
  if (last === undefined) refuse('cannot remove the whole document');
  const parent = find(holder.root, path, pointer);
  if (Array.isArray(parent)) return parent.splice(index(last, parent.length - 1, pointer), 1)[0];
  if (isObject(parent) && Object.hasOwn(parent, last)) {
    const value = parent[last];
    delete parent[last];
    return value;
  }
  return refuse(`remove operation does not apply: doc is missing path: ${pointer}: missing value`);
}

/** RFC 6902. The document is not changed; throws a 422 when an operation does not apply. */
export function applyJsonPatch(document: Obj, operations: unknown): Obj {
  if (!Array.isArray(operations)) throw new Failure(400, 'BadRequest', 'error decoding patch: a JSON patch is a list of operations');
  if (operations.length > 10_000) {
    throw new Failure(413, 'RequestEntityTooLarge', `The allowed maximum operations in a JSON patch is 10000, got ${operations.length}`);
  }
  const holder: { root: unknown } = { root: copy(document) };
  for (const operation of operations as Obj[]) {
    const { op, path, from, value } = operation;
    switch (op) {
      case 'add':
        put(holder, path, copy(value), 'add');
        break;
      case 'replace':
        put(holder, path, copy(value), 'replace');
        break;
      case 'remove':
        take(holder, path);
        break;
      case 'move':
        put(holder, path, take(holder, from), 'add');
        break;
      case 'copy':
        put(holder, path, copy(find(holder.root, parts(from), from)), 'add');
        break;
      case 'test':
        if (!same(find(holder.root, parts(path), path), value)) refuse(`testing value ${path} failed: test failed`);
        break;
      default:
        refuse(`Unexpected kind: ${String(op)}`);
    }
  }
  if (!isObject(holder.root)) refuse('the result is no object');
  return holder.root;
}
