/** `$(NAME)` becomes its value, `$$` one dollar; a reference to nothing known and everything else stay as written. */
export function expand(text: string, valueOf: (name: string) => string | undefined): string {
  return text.replaceAll(/\$(\$|\(([^)]*)\))/g, (whole, what: string, name: string | undefined) => {
    if (what === '$') return '$';
    return valueOf(name ?? '') ?? whole;
  });
}
