/* Says whose rights it runs with; the image gives it the set-user-ID bit. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
  printf("Effective uid: %d\n", (int)geteuid());
  return 0;
}
