#include "sys.h"
int init_main(int argc, char **argv) { (void)argc; (void)argv; return 2; }
int nsrun_main(int argc, char **argv) { (void)argc; (void)argv; return 2; }
int exec_main(int argc, char **argv) { (void)argc; (void)argv; return 2; }
