/*
 * The shell of the busybox image: busybox' own, which words its errors as tests expect, but bash
 * - for an environment with names such as data-1, which busybox drops before it starts a program,
 * - for scripts with wget: busybox' shell takes its own applet, whose -T crashes, before the one on PATH, which does not.
 */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int is_plain(const char *entry) {
  if (!isalpha((unsigned char)*entry) && *entry != '_') return 0;
  for (; *entry != '\0' && *entry != '='; entry++)
    if (!isalnum((unsigned char)*entry) && *entry != '_') return 0;
  return *entry == '=';
}

int main(int count, char **arguments) {
  const char *shell = "/bin/busybox";
  for (char **entry = environ; *entry != NULL; entry++)
    if (!is_plain(*entry)) shell = "/bin/bash-static";
  for (int at = 1; at < count; at++)
    if (strstr(arguments[at], "wget") != NULL) shell = "/bin/bash-static";
  execv(shell, arguments);
  return 127;
}
