/** Letters to change, add or leave out. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (const [i, letter] of Array.from(a).entries()) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) next.push(Math.min((row[j] ?? 0) + (letter === b[j] ? 0 : 1), (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    row = next;
  }
  return row[b.length] ?? 0;
}

/** The words that another is nearest to, by letters to change, the nearest first. */
export function nearest(word: string, words: readonly string[], count = 1): string[] {
  const far = (other: string): number => distance(word.toLowerCase(), other.toLowerCase());
  return words.toSorted((a, b) => far(a) - far(b)).slice(0, count);
}
