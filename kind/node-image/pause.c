/* The first process of every pod: holds its namespaces and, where containers share the process namespace, reaps orphans. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void down(int signal) {
    (void)signal;
    _exit(0);
}

static void reap(int signal) {
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

int main(void) {
    signal(SIGINT, down);
    signal(SIGTERM, down);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
