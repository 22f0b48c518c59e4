/** A directory as Go's file server lists it: names as links, in order, directories with a slash. */
export function directoryPage(names: readonly string[]): string {
  const links = names
    .toSorted()
    .map((name) => `<a href="${encodeURI(name.replaceAll('%', '%25')).replaceAll('?', '%3F').replaceAll('#', '%23')}">${escaped(name)}</a>\n`);
  return `<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n${links.join('')}</pre>\n`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
