/* What a line that logs costs the thread that logs, enabled and not; run by hand:
 *
 *     make c PREFIX=/tmp/helio
 *     cc -O2 -std=c11 -I/tmp/helio/include crates/services/log-c/examples/cost.c \
 *       /tmp/helio/lib/libhelio_log.a -lpthread -lm -ldl -lgcc_s -o cost && ./cost memory:
 *
 * A turn logs less than the ring has room for, and waits behind it until all is published. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "helio_log.h"

enum { TURNS = 200, RECORDS = 2000, DISABLED = 100000000 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char **arguments) {
  char error[256];
  helio_log *log = helio_log_start(count > 1 ? arguments[1] : "memory:", "cost", NULL, error,
                                   sizeof error);
  if (!log) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  const helio_logger *logger = helio_log_logger(log, "CONTROL/DV11/Mount");
  double begin = now();
  for (int n = 0; n < DISABLED; n++) {
    HELIO_LOG(logger, HELIO_TRACE, "axis %s is %.1f degrees off", "azimuth", n * 0.25);
    __asm__ volatile("" ::: "memory");
  }
  printf("disabled: %.2f ns\n", (now() - begin) / DISABLED);
  begin = now();
  for (int n = 0; n < DISABLED; n++) __asm__ volatile("" ::: "memory");
  printf("the loop itself: %.2f ns\n", (now() - begin) / DISABLED);
  double best = 1e9;
  for (int turn = 0; turn < TURNS; turn++) {
    begin = now();
    for (int n = 0; n < RECORDS; n++)
      HELIO_LOG(logger, HELIO_INFO, "axis %s is %.1f degrees off, %d", "azimuth", n * 0.25, n);
    double each = (now() - begin) / RECORDS;
    if (each < best) best = each;
    if (helio_log_flush(log, 60000) != HELIO_LOG_OK) return 1;
  }
  helio_log_figures figures;
  if (helio_log_read_figures(log, &figures) != HELIO_LOG_OK || figures.shed) return 1;
  printf("enabled, a text and two numbers: %.0f ns, best of %d turns\n", best, TURNS);
  return helio_log_close(log);
}
