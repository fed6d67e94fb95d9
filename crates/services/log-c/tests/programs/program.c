/* What the tests run, as C and as C++: `program SCENARIO URL`. It ends with 0, or says which line
 * is not as it should be. */
#include "helio_log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(holds)                                                           \
  do {                                                                         \
    if (!(holds)) {                                                            \
      fprintf(stderr, "line %d: %s\n", __LINE__, #holds);                      \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

/* A loaded machine is slow. */
enum { PATIENCE_MS = 60000, THREADS = 4, RECORDS = 10000 };

static helio_log *start(const char *url) {
  char error[512];
  helio_log_options options = helio_log_default_options();
  options.process = "program";
  options.host = "dv11";
  helio_log *log = helio_log_start(url, "CONTROL/DV11", &options, error, sizeof error);
  if (!log) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
  CHECK(error[0] == 0);
  return log;
}

static int evaluated = 0;

static int evaluate(void) { return ++evaluated; }

static void types(helio_log *log) {
  const helio_logger *all = helio_log_logger(log, "types");
  CHECK(all == helio_log_logger(log, "types"));
  char array[] = "array";
  const char *none = NULL;
  const char unterminated[3] = {'a', 'b', 'c'};
  bool yes = true;
  HELIO_LOG(all, HELIO_INFO, "no arguments, 100 %%");
  HELIO_LOG(all, HELIO_INFO, "%d %u %hd %hu %ld %lu %lld %llu", -1, 2u, (short)-3,
            (unsigned short)4, -5l, 6ul, -7ll, 8ull);
  HELIO_LOG(all, HELIO_INFO, "%c %hhd %hhu %d", (char)'A', (signed char)-2, (unsigned char)200,
            yes);
  HELIO_LOG(all, HELIO_INFO, "%.1f %g %Lf", 1.5f, 0.25, 4.0L);
  HELIO_LOG(all, HELIO_INFO, "%s %s %s", array, "literal", none);
  HELIO_LOG(all, HELIO_INFO, "%llu %#llx", UINT64_C(18446744073709551615) + 0ull,
            (unsigned long long)-1);
  HELIO_LOG(all, HELIO_INFO, "%.3s|%.*s|%*d|%.2s", unterminated, 2, unterminated, 5, 7, "long");
  HELIO_LOG(all, HELIO_INFO, "%p", (void *)4096);
  HELIO_LOG(all, HELIO_INFO, "%s %s", helio_log_text("counted", 5), helio_log_bytes("\0\xff", 2));
  HELIO_LOG(all, HELIO_INFO, "%s", "not \xff UTF-8");
  HELIO_LOG(all, HELIO_INFO, "%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d", 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2,
            3, 4, 5, 6, 7);
  HELIO_LOG_WITH(all, HELIO_INFO,
                 (HELIO_DATA("encoder", 8388607), HELIO_DATA("state", "TRACKING"),
                  HELIO_DATA("load", 0.5), HELIO_DATA("on", yes)),
                 "at %.2f degrees", 12.345);
}

static void levels(helio_log *log) {
  const helio_logger *mount = helio_log_logger(log, "levels");
  CHECK(!helio_log_enabled(mount, HELIO_TRACE) && helio_log_enabled(mount, HELIO_DELOUSE));
  HELIO_LOG(mount, HELIO_TRACE, "%d", evaluate());
  HELIO_LOG_WITH(mount, HELIO_TRACE, (HELIO_DATA("n", evaluate())), "disabled");
  CHECK(evaluated == 0);
  CHECK(helio_log_set_level(mount, HELIO_TRACE) == HELIO_LOG_OK);
  HELIO_LOG(mount, HELIO_TRACE, "%d", evaluate());
  CHECK(evaluated == 1);
  CHECK(helio_log_set_level(mount, HELIO_ERROR) == HELIO_LOG_OK);
  HELIO_LOG(mount, HELIO_WARNING, "%d", evaluate());
  CHECK(evaluated == 1);
  for (int level = HELIO_TRACE; level <= HELIO_EMERGENCY; level++)
    HELIO_LOG(mount, level, "level %d", level);
  const helio_logger *other = helio_log_logger(log, "others");
  CHECK(helio_log_enabled(other, HELIO_INFO));
  HELIO_LOG(helio_log_to(other, "Operator, SciLog"), HELIO_NOTICE, "for two");
  HELIO_LOG(helio_log_to(other, "*"), HELIO_NOTICE, "for everyone");
  CHECK(helio_log_to(other, "SciLog,Operator") == helio_log_to(other, "Operator,SciLog"));
  CHECK(helio_log_level("warn") == HELIO_WARNING);
  CHECK(helio_log_level("EMERGENCY") == HELIO_EMERGENCY);
  CHECK(helio_log_level("loud") == HELIO_LOG_FAILED);
}

static void emit(helio_log *log) {
  const helio_logger *other = helio_log_logger(log, "emit");
  helio_log_data data[] = {HELIO_DATA("n", 7), HELIO_DATA("text", "x")};
  CHECK(helio_log_emit(other, HELIO_WARNING, "old.c", 12, "old", "100 % is %s", data, 2) == 0);
  CHECK(helio_log_emit(other, HELIO_INFO, NULL, 0, NULL, "bare", NULL, 0) == HELIO_LOG_OK);
  CHECK(helio_log_emit(other, HELIO_TRACE, NULL, 0, NULL, "disabled", NULL, 0) == HELIO_LOG_OK);
}

static void *flood(void *argument) {
  const helio_logger *logger = (const helio_logger *)argument;
  for (int n = 0; n < RECORDS; n++)
    HELIO_LOG(logger, n % 10 ? HELIO_INFO : HELIO_WARNING, "record %d", n);
  return NULL;
}

static void threads(helio_log *log) {
  pthread_t all[THREADS];
  for (int n = 0; n < THREADS; n++) {
    char name[32];
    snprintf(name, sizeof name, "thread/%d", n);
    CHECK(!pthread_create(&all[n], NULL, flood, (void *)helio_log_logger(log, name)));
  }
  for (int n = 0; n < THREADS; n++) CHECK(!pthread_join(all[n], NULL));
  CHECK(helio_log_flush(log, PATIENCE_MS) == HELIO_LOG_OK);
  helio_log_figures figures;
  CHECK(helio_log_read_figures(log, &figures) == HELIO_LOG_OK);
  CHECK(figures.offered == THREADS * RECORDS && figures.waiting == 0);
  CHECK(figures.offered == figures.published + figures.shed);
  CHECK(figures.packets > 0 && figures.bytes > 0 && figures.rejected == 0);
  printf("%llu\n", (unsigned long long)figures.published);
}

static void wrong(helio_log *log, const char *url) {
  char text[256], cut[8];
  CHECK(!helio_log_start("nowhere:x", NULL, NULL, text, sizeof text) && strstr(text, "nowhere"));
  CHECK(!helio_log_start("nowhere:x", NULL, NULL, cut, sizeof cut) && strlen(cut) == 7);
  CHECK(!helio_log_start("nowhere:x", NULL, NULL, NULL, 0));
  CHECK(!helio_log_start(NULL, NULL, NULL, text, sizeof text) && strstr(text, "URL"));
  helio_log_options options = helio_log_default_options();
  options.level = 12;
  CHECK(!helio_log_start(url, NULL, &options, text, sizeof text) && strstr(text, "12"));
  options = helio_log_default_options();
  options.ring_bytes = 1;
  CHECK(!helio_log_start(url, NULL, &options, text, sizeof text) && strstr(text, "ring_bytes"));
  options.size = 3;
  CHECK(!helio_log_start(url, NULL, &options, text, sizeof text) && strstr(text, "options"));
  options = helio_log_default_options();
  options.prefix = "a//b";
  CHECK(!helio_log_start(url, NULL, &options, text, sizeof text) && text[0]);

  const helio_logger *none = NULL, *some = helio_log_logger(log, "wrong");
  HELIO_LOG(none, HELIO_EMERGENCY, "%d", evaluate());
  CHECK(evaluated == 0);
  CHECK(!helio_log_logger(NULL, "a") && !helio_log_logger(log, NULL));
  CHECK(!helio_log_to(NULL, "Operator") && !helio_log_to(some, NULL) && !helio_log_to(some, " ,"));
  CHECK(helio_log_set_level(NULL, HELIO_INFO) == HELIO_LOG_FAILED);
  CHECK(helio_log_set_level(some, 0) == HELIO_LOG_FAILED);
  CHECK(helio_log_set_level(some, 12) == HELIO_LOG_FAILED);
  CHECK(helio_log_level(NULL) == HELIO_LOG_FAILED);
  CHECK(helio_log_flush(NULL, 1) == HELIO_LOG_FAILED && helio_log_close(NULL) == HELIO_LOG_FAILED);
  CHECK(helio_log_read_figures(log, NULL) == HELIO_LOG_FAILED);
  CHECK(helio_log_trouble(NULL, text, sizeof text) == HELIO_LOG_FAILED && !text[0]);
  CHECK(helio_log_trouble(log, text, sizeof text) == HELIO_LOG_OK && !text[0]);
  HELIO_LOG(some, 12, "no level");
  HELIO_LOG(some, 1000, "no level");
  HELIO_LOG(some, 0, "no level, and disabled");
  CHECK(helio_log_record(some, HELIO_INFO, NULL, NULL, 0, NULL, 0) == HELIO_LOG_FAILED);
  CHECK(helio_log_emit(some, HELIO_INFO, "f", 1, "r", NULL, NULL, 0) == HELIO_LOG_FAILED);
  CHECK(helio_log_emit(some, -3, "f", 1, "r", "t", NULL, 0) == HELIO_LOG_FAILED);
  helio_log_site empty = {NULL, NULL, NULL, 0, 0};
  helio_log_value odd = helio_log_int(7);
  odd.kind = 99;
  CHECK(helio_log_record(some, HELIO_INFO, &empty, &odd, 1, NULL, 3) == HELIO_LOG_OK);
  CHECK(helio_log_flush(log, PATIENCE_MS) == HELIO_LOG_OK);
  helio_log_figures figures;
  CHECK(helio_log_read_figures(log, &figures) == HELIO_LOG_OK);
  CHECK(figures.offered == 1 && figures.published == 1 && figures.rejected == 5);

  CHECK(helio_log_close(log) == HELIO_LOG_OK && helio_log_close(log) == HELIO_LOG_FAILED);
  CHECK(!helio_log_enabled(some, HELIO_EMERGENCY));
  HELIO_LOG(some, HELIO_EMERGENCY, "closed");
  CHECK(helio_log_record(some, HELIO_EMERGENCY, &empty, NULL, 0, NULL, 0) == HELIO_LOG_FAILED);
  CHECK(!helio_log_logger(log, "a") && !helio_log_to(some, "a"));
  CHECK(helio_log_flush(log, 1) == HELIO_LOG_FAILED);
}

static void forks(helio_log *log) {
  const helio_logger *logger = helio_log_logger(log, "fork");
  HELIO_LOG(logger, HELIO_INFO, "before");
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    HELIO_LOG(logger, HELIO_INFO, "in the child");
    int failed = helio_log_flush(log, PATIENCE_MS) == HELIO_LOG_FAILED &&
                 helio_log_close(log) == HELIO_LOG_FAILED && !helio_log_logger(log, "a") &&
                 helio_log_emit(logger, HELIO_INFO, "f", 1, "r", "t", NULL, 0) == HELIO_LOG_FAILED;
    exit(failed ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  HELIO_LOG(logger, HELIO_INFO, "behind");
}

#ifdef __cplusplus
#include <string>

static std::string made(const char *what) { return std::string(what) + " is made in place"; }

template <class T> static void in_template(const helio_logger *logger, T value) {
  HELIO_LOG(logger, HELIO_INFO, "%s", made(value));
}

enum Colour { RED, GREEN };

static void cpp(helio_log *log) {
  const helio_logger *logger = helio_log_logger(log, "cpp");
  std::string text("text");
  HELIO_LOG(logger, HELIO_INFO, "%s %s %d %d", text, std::string_view("view").substr(1), true,
            GREEN);
  HELIO_LOG_WITH(logger, HELIO_INFO,
                 (HELIO_DATA("made", made("data")), HELIO_DATA("null", nullptr)), "%s",
                 made("this text, which is longer than a string keeps in itself,"));
  in_template(logger, "a");
  [&] { HELIO_LOG(logger, HELIO_INFO, "%zu", text.size()); }();
}
#else
static void cpp(helio_log *log) { CHECK(!log); }
#endif

int main(int count, char **arguments) {
  CHECK(count == 3);
  const char *scenario = arguments[1], *url = arguments[2];
  helio_log *log = start(url);
  if (!strcmp(scenario, "types")) types(log);
  else if (!strcmp(scenario, "levels")) levels(log);
  else if (!strcmp(scenario, "emit")) emit(log);
  else if (!strcmp(scenario, "threads")) threads(log);
  else if (!strcmp(scenario, "cpp")) cpp(log);
  else if (!strcmp(scenario, "wrong")) { wrong(log, url); return 0; }
  /* Neither of these closes: exit() waits for what was logged. */
  else if (!strcmp(scenario, "exit")) { types(log); return 0; }
  else if (!strcmp(scenario, "fork")) { forks(log); return 0; }
  else CHECK(!"a scenario");
  CHECK(helio_log_close(log) == HELIO_LOG_OK);
  return 0;
}
