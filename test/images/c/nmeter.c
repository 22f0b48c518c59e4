/*
 * The applet of that name, which the distribution leaves out of its busybox: of its formats only the time (%t, with up to six
 * decimals as in %3t), a line each -d milliseconds, for ever.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
  long pause_ms = 1000;
  const char *format = NULL;
  for (int at = 1; at < count; at++) {
    if (strncmp(arguments[at], "-d", 2) == 0) pause_ms = atol(arguments[at] + 2);
    else format = arguments[at];
  }
  int decimals = 0;
  char end = 0;
  if (format == NULL || (strcmp(format, "%t") != 0 && (sscanf(format, "%%%1d%c", &decimals, &end) != 2 || end != 't' || decimals > 6))) {
    fputs("nmeter: only %t to %6t\n", stderr);
    return 1;
  }
  for (;;) {
    struct timeval now;
    gettimeofday(&now, NULL);
    char text[16];
    strftime(text, sizeof text, "%H:%M:%S", localtime(&now.tv_sec));
    char fraction[8];
    snprintf(fraction, sizeof fraction, "%06ld", (long)now.tv_usec);
    if (printf("%s%s%.*s\n", text, decimals == 0 ? "" : ".", decimals, fraction) < 0 || fflush(stdout) != 0) return 1;
    usleep((useconds_t)pause_ms * 1000);
  }
}
