/* Holds the namespaces of a sandbox: ends with 0 when told to, and as process 1 buries what was orphaned. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) {
  (void)signal;
  _exit(0);
}

static void bury(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(int count, char **arguments) {
  if (count > 1 && strcmp(arguments[1], "-v") == 0) {
    puts("pause.c made here, in the place of 3.10.2");
    return 0;
  }
  struct sigaction action = {.sa_handler = end};
  if (sigaction(SIGINT, &action, NULL) < 0) return 1;
  if (sigaction(SIGTERM, &action, NULL) < 0) return 2;
  action.sa_handler = bury;
  action.sa_flags = SA_NOCLDSTOP;
  if (sigaction(SIGCHLD, &action, NULL) < 0) return 3;
  for (;;) pause();
}
