import { errnoName } from './errno.ts';
import { pathType } from './flags.ts';
import type { FileOp, FileOpResult } from './types.ts';
import { FieldReader, type FieldWriter, fileOpCodes } from './wire.ts';

const unchanged = 0xffffffff;

/** One operation's fields; all have the same shape, so that the C side reads one struct. */
export function writeFileOp(fields: FieldWriter, op: FileOp): void {
  let other = '';
  if (op.op === 'symlink') other = op.target;
  else if (op.op === 'rename') other = op.to;
  let number = 0;
  if (op.op === 'read') number = op.maxBytes;
  else if ('mode' in op) number = op.mode;
  const owner: { uid?: number; gid?: number } = op.op === 'write' || op.op === 'chown' ? op : {};
  fields.u8(fileOpCodes[op.op]).string(op.path).string(other).u32(number);
  fields.u32(owner.uid ?? unchanged).u32(owner.gid ?? unchanged);
  fields.bytes(op.op === 'write' ? op.data : '');
}

export function readFileOpResult(op: FileOp['op'], errno: number, data: Buffer): FileOpResult {
  if (errno !== 0) return { errno: errnoName(errno) };
  switch (op) {
    case 'read':
      return { errno: '', data };
    case 'readlink':
      return { errno: '', target: data.toString() };
    case 'list':
      return { errno: '', names: data.toString().split('\0').slice(0, -1) };
    case 'stat': {
      const fields = new FieldReader(data);
      const mode = fields.u32();
      return {
        errno: '',
        stat: { type: pathType(mode), mode: mode & 0o7777, uid: fields.u32(), gid: fields.u32(), size: fields.u64(), mountPoint: fields.u8() === 1 },
      };
    }
    default:
      return { errno: '' };
  }
}
