import { InvalidArgumentError, Option } from 'commander';

/** `64MiB`, `1GiB`, `500k`, or bytes. */
export function readSize(text: string): number {
  const found = /^(\d+)\s*(?:([kmg])(?:i?b)?|b)?$/i.exec(text);
  const size = Number(found?.[1] ?? 0) * 1024 ** ' kmg'.indexOf((found?.[2] ?? ' ').toLowerCase());
  if (size < 1 || !Number.isSafeInteger(size)) throw new InvalidArgumentError('write a size as 64MiB.');
  return size;
}

/** An option that takes a size, whose default is told as it would be written. */
export function sizeOption(flags: string, words: string, size: string): Option {
  return new Option(flags, words).argParser(readSize).default(readSize(size), size);
}
