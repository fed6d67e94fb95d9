/* Heliograph: logging from C (C11) and C++ (C++17), with GCC or Clang.
 *
 * A line that logs writes its arguments, typed, into a ring of its thread; it waits for nobody, and
 * nothing is made into text there. One thread of the library publishes what was logged.
 *
 *     char error[256];
 *     helio_log *log = helio_log_start("journal:/var/lib/helio", "CONTROL/DV11", NULL, error,
 *                                      sizeof error);
 *     if (!log) { fprintf(stderr, "%s\n", error); return 1; }
 *     const helio_logger *mount = helio_log_logger(log, "CONTROL/DV11/Mount");
 *     HELIO_LOG(mount, HELIO_WARNING, "axis %s is %.1f degrees off", axis, off);
 *     helio_log_close(log);
 *
 * Threads. Every function may be called from any thread at any time. None is to be called from a
 * signal handler: raise a flag there and log elsewhere.
 *
 * fork(). Start after it: of what was started before it, the parent goes on as before, and in the
 * child its loggers log nothing, and every call with it fails.
 *
 * The end. exit(), and a return from main(), wait at most 2 s for what was logged to be published;
 * _exit() and signals do not: then up to the last batch_age_ms is lost.
 *
 * Errors. Nothing here throws, aborts or unwinds; a NULL or a level that is none makes a call fail.
 * Text that is not UTF-8 is taken with replacement characters in it.
 */
#ifndef HELIO_LOG_H
#define HELIO_LOG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <initializer_list>
#include <string_view>
#include <type_traits>
#define HELIO_LOG_NOTHROW_ noexcept
extern "C" {
#else
#define HELIO_LOG_NOTHROW_
#endif

/* What calls return. */
enum {
  HELIO_LOG_OK = 0,
  /* The time was over before it was done. */
  HELIO_LOG_TIME_OVER = 1,
  /* An argument is wrong, the log is closed, or this process is a fork of its own. */
  HELIO_LOG_FAILED = -1
};

/* How grave a record is: ACS's levels (AcsLogLevels of its logging_idl.idl); it reserves 7. */
enum {
  HELIO_TRACE = 1,
  HELIO_DELOUSE = 2,
  HELIO_DEBUG = 3,
  HELIO_INFO = 4,
  HELIO_NOTICE = 5,
  HELIO_WARNING = 6,
  HELIO_ERROR = 8,
  HELIO_CRITICAL = 9,
  HELIO_ALERT = 10,
  HELIO_EMERGENCY = 11
};

/* What a process logs with: a connection to a bus, and the thread that publishes. */
typedef struct helio_log helio_log;

/* Logs under a name. It is never freed: it may be kept, and used, for as long as the process lives.
 * Behind helio_log_close() it logs nothing. */
typedef struct helio_logger {
  /* The library's: where the number of the lowest level lies that goes anywhere. */
  const uint8_t *lowest;
} helio_logger;

/* How a process logs: take helio_log_default_options() and change what is to be otherwise. What is
 * NULL or 0 is as if it were not there. */
typedef struct helio_log_options {
  /* sizeof(helio_log_options). */
  size_t size;
  /* What the topics' names begin with; "log" unless given. */
  const char *prefix;
  /* The process in each record; the program's name and the process's number unless given. */
  const char *process;
  /* The machine in each record; its name unless given. */
  const char *host;
  /* Where packets are kept while the bus takes none and memory is full. One process has it. */
  const char *spill_file;
  /* How long that file may become; 256 MiB unless given. */
  uint64_t spill_bytes;
  /* Bytes of each thread's ring, 4 KiB to 1 GiB; 1 MiB unless given. */
  size_t ring_bytes;
  /* Bytes of packets that are kept in memory while the bus takes none; 16 MiB unless given. */
  size_t queue_bytes;
  /* How long a record waits for others of its level; 20 ms unless given. */
  uint32_t batch_age_ms;
  /* How many records are published together at most; 1,000 unless given. */
  uint32_t batch_records;
  /* The lowest level that is published; HELIO_DELOUSE unless given. */
  int level;
  /* The lowest level of which a thread keeps its newest records, to publish them when an error
   * comes; nothing is kept unless given. */
  int keep;
  /* The level from which on records are published at once, durably; HELIO_ALERT unless given. */
  int urgent;
} helio_log_options;

/* What became of the records: offered = published + shed + waiting, while nothing is logged. */
typedef struct helio_log_figures {
  /* Records that were to be published. */
  uint64_t offered;
  /* Of these, records that another process had left in the spill file. */
  uint64_t inherited;
  /* Records that the bus has acknowledged. */
  uint64_t published;
  /* Records that were dropped because a queue was full, or because the bus refused them. */
  uint64_t shed;
  /* Of these, records that their call site logged too often. */
  uint64_t suppressed;
  /* Records on their way. */
  uint64_t waiting;
  /* Packets that the bus has acknowledged, and their bytes. */
  uint64_t packets;
  uint64_t bytes;
  /* Bytes that lie in the spill file. */
  uint64_t spilled_bytes;
  /* Records that were to be printed, and were not, because there was no room. */
  uint64_t unprinted;
  /* Samples of the topic of levels that were passed over, because they say nothing of levels. */
  uint64_t levels_passed_over;
  /* Calls that made no record, because an argument was wrong. They are not among the offered. */
  uint64_t rejected;
} helio_log_figures;

/* A typed value: HELIO_LOG_VALUE() makes one of what it is given. */
typedef struct helio_log_value {
  /* One of the kinds below. */
  uint32_t kind;
  union {
    int64_t whole;
    uint64_t natural;
    double real;
    const void *at;
  } as;
  /* Bytes of a HELIO_LOG_TEXT or HELIO_LOG_BYTES. */
  size_t bytes;
} helio_log_value;

enum {
  HELIO_LOG_NULL = 0,
  HELIO_LOG_BOOL = 1,
  HELIO_LOG_INT = 2,
  HELIO_LOG_UINT = 3,
  HELIO_LOG_DOUBLE = 4,
  /* A text that ends with a NUL; NULL is HELIO_LOG_NULL. */
  HELIO_LOG_STRING = 5,
  /* A text of so many bytes. */
  HELIO_LOG_TEXT = 6,
  /* Bytes that are no text. */
  HELIO_LOG_BYTES = 7
};

/* A typed value by name: HELIO_DATA() makes one. */
typedef struct helio_log_data {
  const char *name;
  helio_log_value value;
} helio_log_data;

/* A line that logs. Its texts are to live as long as the process. */
typedef struct helio_log_site {
  /* The message, with places for its arguments as printf() has them. */
  const char *text;
  const char *file;
  const char *routine;
  uint32_t line;
  /* The library's; 0 at first. */
  uint64_t number __attribute__((aligned(8)));
} helio_log_site;

/* Starts to log to the bus of a URL (journal:/var/lib/helio, memory:, and dds:// and kafka:// where
 * the library was built with them), under a producer's name that is stable over restarts; NULL
 * makes one up. Options may be NULL. A bus that is away is tried until it is there, and what is
 * logged meanwhile waits; helio_log_trouble() tells why. Where waiting mends nothing, as with a URL
 * that is none: NULL, and the reason as text in `error`, cut to `error_size` bytes with a NUL
 * behind it. */
helio_log *helio_log_start(const char *url, const char *producer, const helio_log_options *options,
                           char *error, size_t error_size) HELIO_LOG_NOTHROW_;

/* The logger of a name, with slashes between its parts: the same one for the same name. NULL for
 * arguments that are wrong; logging with that does nothing. At most 65,536, with those of
 * helio_log_to(): then the first one of all is given instead. */
const helio_logger *helio_log_logger(helio_log *log, const char *name) HELIO_LOG_NOTHROW_;

/* The same logger, whose records are for these audiences: names with commas between them
 * ("Operator,SciLog"), or "*" for everyone. */
const helio_logger *helio_log_to(const helio_logger *logger, const char *audiences)
    HELIO_LOG_NOTHROW_;

/* Sets the lowest level that is published by all loggers of this one's name. */
int helio_log_set_level(const helio_logger *logger, int level) HELIO_LOG_NOTHROW_;

/* The number of a level's name ("WARNING", "warn", "6"); HELIO_LOG_FAILED where it is none. */
int helio_log_level(const char *name) HELIO_LOG_NOTHROW_;

/* Waits until all that was logged before is acknowledged or shed: HELIO_LOG_OK, or
 * HELIO_LOG_TIME_OVER. */
int helio_log_flush(helio_log *log, uint32_t timeout_ms) HELIO_LOG_NOTHROW_;

/* What became of the records, as of the publishing thread's last turn. */
int helio_log_read_figures(helio_log *log, helio_log_figures *into) HELIO_LOG_NOTHROW_;

/* Why the bus takes nothing at the moment, cut to `size` bytes with a NUL behind it: HELIO_LOG_OK
 * and an empty text where it does take what is logged. */
int helio_log_trouble(helio_log *log, char *text, size_t size) HELIO_LOG_NOTHROW_;

/* Publishes what was logged, waiting at most 5 s, and ends. What is logged meanwhile by other
 * threads may be lost. */
int helio_log_close(helio_log *log) HELIO_LOG_NOTHROW_;

/* Logs a message that is text already, from a place that is known when the program runs: for
 * logging functions that are there. HELIO_LOG() is cheaper, and keeps arguments as what they are.
 * `file`, `routine` and `data` may be NULL. */
int helio_log_emit(const helio_logger *logger, int level, const char *file, uint32_t line,
                   const char *routine, const char *text, const helio_log_data *data,
                   size_t data_count) HELIO_LOG_NOTHROW_;

/* What HELIO_LOG() calls where the level is enabled. */
int helio_log_record(const helio_logger *logger, int level, helio_log_site *site,
                     const helio_log_value *arguments, size_t argument_count,
                     const helio_log_data *data, size_t data_count) HELIO_LOG_NOTHROW_;

#ifdef __cplusplus
}
#endif

/* Options that change nothing. */
static inline helio_log_options helio_log_default_options(void) {
  static const helio_log_options defaults = {
      sizeof(helio_log_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  return defaults;
}

/* Whether a record of this level goes anywhere: two loads and a comparison. */
static inline int helio_log_enabled(const helio_logger *logger, int level) {
  return logger &&
         level >= __atomic_load_n(__atomic_load_n(&logger->lowest, __ATOMIC_RELAXED),
                                  __ATOMIC_RELAXED);
}

static inline helio_log_value helio_log_null(void) {
  helio_log_value value;
  value.kind = HELIO_LOG_NULL;
  value.as.whole = 0;
  value.bytes = 0;
  return value;
}

static inline helio_log_value helio_log_int(int64_t whole) {
  helio_log_value value;
  value.kind = HELIO_LOG_INT;
  value.as.whole = whole;
  value.bytes = 0;
  return value;
}

static inline helio_log_value helio_log_uint(uint64_t natural) {
  helio_log_value value;
  value.kind = HELIO_LOG_UINT;
  value.as.natural = natural;
  value.bytes = 0;
  return value;
}

static inline helio_log_value helio_log_bool(int truth) {
  helio_log_value value;
  value.kind = HELIO_LOG_BOOL;
  value.as.whole = truth != 0;
  value.bytes = 0;
  return value;
}

/* A long double loses what a double has no place for. */
static inline helio_log_value helio_log_double(double real) {
  helio_log_value value;
  value.kind = HELIO_LOG_DOUBLE;
  value.as.real = real;
  value.bytes = 0;
  return value;
}

/* A text that ends with a NUL, or NULL. */
static inline helio_log_value helio_log_string(const char *text) {
  helio_log_value value;
  value.kind = HELIO_LOG_STRING;
  value.as.at = text;
  value.bytes = 0;
  return value;
}

/* A text of so many bytes, for which %s stands. */
static inline helio_log_value helio_log_text(const char *text, size_t bytes) {
  helio_log_value value;
  value.kind = HELIO_LOG_TEXT;
  value.as.at = text;
  value.bytes = bytes;
  return value;
}

/* Bytes that are no text, shown as hexadecimal digits; %s stands for them, too. */
static inline helio_log_value helio_log_bytes(const void *bytes, size_t count) {
  helio_log_value value;
  value.kind = HELIO_LOG_BYTES;
  value.as.at = bytes;
  value.bytes = count;
  return value;
}

/* A pointer as a number; what it points to is not looked at. */
static inline helio_log_value helio_log_pointer(const void *pointer) {
  return helio_log_uint((uint64_t)(uintptr_t)pointer);
}

static inline helio_log_value helio_log_same(helio_log_value value) { return value; }

static inline helio_log_data helio_log_pair(const char *name, helio_log_value value) {
  helio_log_data data;
  data.name = name;
  data.value = value;
  return data;
}

/* Never called: the compiler holds arguments against the message as it does for printf(). */
__attribute__((format(printf, 1, 2), unused)) static inline void
helio_log_check_(const char *text, ...) {
  (void)text;
}

#ifdef __cplusplus

#define HELIO_LOG_OF_(type, argument, make) \
  inline helio_log_value helio_log_value_of(type value) noexcept { return make((argument)value); }
HELIO_LOG_OF_(bool, int, helio_log_bool)
HELIO_LOG_OF_(char, int64_t, helio_log_int)
HELIO_LOG_OF_(signed char, int64_t, helio_log_int)
HELIO_LOG_OF_(unsigned char, uint64_t, helio_log_uint)
HELIO_LOG_OF_(short, int64_t, helio_log_int)
HELIO_LOG_OF_(unsigned short, uint64_t, helio_log_uint)
HELIO_LOG_OF_(int, int64_t, helio_log_int)
HELIO_LOG_OF_(unsigned, uint64_t, helio_log_uint)
HELIO_LOG_OF_(long, int64_t, helio_log_int)
HELIO_LOG_OF_(unsigned long, uint64_t, helio_log_uint)
HELIO_LOG_OF_(long long, int64_t, helio_log_int)
HELIO_LOG_OF_(unsigned long long, uint64_t, helio_log_uint)
HELIO_LOG_OF_(float, double, helio_log_double)
HELIO_LOG_OF_(double, double, helio_log_double)
HELIO_LOG_OF_(long double, double, helio_log_double)
HELIO_LOG_OF_(const char *, const char *, helio_log_string)
HELIO_LOG_OF_(const void *, const void *, helio_log_pointer)
#undef HELIO_LOG_OF_
inline helio_log_value helio_log_value_of(std::nullptr_t) noexcept { return helio_log_null(); }
inline helio_log_value helio_log_value_of(std::string_view text) noexcept {
  return helio_log_text(text.data(), text.size());
}
inline helio_log_value helio_log_value_of(helio_log_value value) noexcept { return value; }

/* What printf() would be given in its place. */
template <class T> inline std::enable_if_t<std::is_scalar_v<T>, T> helio_log_shown_(T value) {
  return value;
}
template <class T>
inline std::enable_if_t<!std::is_scalar_v<T> && !std::is_array_v<T>, const char *>
helio_log_shown_(const T &) {
  return "";
}

inline int helio_log_record_(const helio_logger *logger, int level, helio_log_site *site,
                             std::initializer_list<helio_log_value> arguments,
                             std::initializer_list<helio_log_data> data) noexcept {
  return helio_log_record(logger, level, site, arguments.begin() + 1, arguments.size() - 1,
                          data.begin(), data.size());
}

/* A typed value of what it is given: numbers, bool, texts (const char *, std::string,
 * std::string_view), pointers, a helio_log_value. */
#define HELIO_LOG_VALUE(value) helio_log_value_of(value)
#define HELIO_LOG_SHOWN_(value) helio_log_shown_(value)
#define HELIO_LOG_NO_DATA_ {}
#define HELIO_LOG_DATA_(data) {HELIO_LOG_STRIP_ data}
#define HELIO_LOG_RECORD_(logger, level, site, data, ...)                                     \
  helio_log_record_(logger, level, site,                                                      \
                    {helio_log_null() HELIO_LOG_VALUES_(__VA_ARGS__)},                        \
                    HELIO_LOG_STRIP_ data)

#else

/* A typed value of what it is given: numbers, _Bool, texts (char *), other pointers, a
 * helio_log_value. */
#define HELIO_LOG_VALUE(value)                                                                \
  _Generic((value),                                                                           \
      _Bool: helio_log_bool,                                                                  \
      char: helio_log_int,                                                                    \
      signed char: helio_log_int,                                                             \
      short: helio_log_int,                                                                   \
      int: helio_log_int,                                                                     \
      long: helio_log_int,                                                                    \
      long long: helio_log_int,                                                               \
      unsigned char: helio_log_uint,                                                          \
      unsigned short: helio_log_uint,                                                         \
      unsigned: helio_log_uint,                                                               \
      unsigned long: helio_log_uint,                                                          \
      unsigned long long: helio_log_uint,                                                     \
      float: helio_log_double,                                                                \
      double: helio_log_double,                                                               \
      long double: helio_log_double,                                                          \
      char *: helio_log_string,                                                               \
      const char *: helio_log_string,                                                         \
      helio_log_value: helio_log_same,                                                        \
      default: helio_log_pointer)(value)
#define HELIO_LOG_SHOWN_(value) _Generic((value), helio_log_value: "", default: (value))
#define HELIO_LOG_NO_DATA_ (const helio_log_data *)0, 0
#define HELIO_LOG_DATA_(data) \
  (const helio_log_data[]){HELIO_LOG_STRIP_ data}, HELIO_LOG_COUNT_ALL_ data
#define HELIO_LOG_RECORD_(logger, level, site, data, ...)                                     \
  helio_log_record(                                                                           \
      logger, level, site,                                                                    \
      (const helio_log_value[]){helio_log_null() HELIO_LOG_VALUES_(__VA_ARGS__)} + 1,         \
      HELIO_LOG_COUNT_(__VA_ARGS__) - 1, HELIO_LOG_STRIP_ data)

#endif

/* A value by a name: HELIO_DATA("encoder", n). */
#define HELIO_DATA(name, value) helio_log_pair(name, HELIO_LOG_VALUE(value))

/* Logs a record: a logger, a level, a message that is a literal with places as printf() has them,
 * and at most 16 arguments. These are not evaluated where the level is not enabled. They are
 * recorded as what they are, whatever the message says of them: %s with a number shows the number,
 * %s with NULL shows "null", %n writes nothing. */
#define HELIO_LOG(logger, level, ...) \
  HELIO_LOG_LINE_(logger, level, (HELIO_LOG_NO_DATA_), __VA_ARGS__)

/* The same with up to 16 values by name, in parentheses:
 * HELIO_LOG_WITH(mount, HELIO_INFO, (HELIO_DATA("encoder", n)), "at %.1f degrees", position) */
#define HELIO_LOG_WITH(logger, level, data, ...) \
  HELIO_LOG_LINE_(logger, level, (HELIO_LOG_DATA_(data)), __VA_ARGS__)

#define HELIO_LOG_LINE_(logger_, level_, data_, ...)                                          \
  do {                                                                                        \
    const helio_logger *helio_log_logger_ = (logger_);                                        \
    int helio_log_level_ = (level_);                                                          \
    if (__builtin_expect(helio_log_enabled(helio_log_logger_, helio_log_level_), 0)) {        \
      static helio_log_site helio_log_site_ = {HELIO_LOG_FIRST_(__VA_ARGS__, 0), __FILE__,    \
                                               __func__, __LINE__, 0};                        \
      HELIO_LOG_RECORD_(helio_log_logger_, helio_log_level_, &helio_log_site_, data_,         \
                        __VA_ARGS__);                                                         \
      if (0) {                                                                                \
        helio_log_check_(HELIO_LOG_FIRST_(__VA_ARGS__, 0) HELIO_LOG_ALL_SHOWN_(__VA_ARGS__)); \
      }                                                                                       \
    }                                                                                         \
  } while (0)

/* The preprocessor's part: counts, and does the same with each argument behind the message. */
#define HELIO_LOG_STRIP_(...) __VA_ARGS__
#define HELIO_LOG_FIRST_(text, ...) "" text ""
#define HELIO_LOG_ADD_(value) , HELIO_LOG_VALUE(value)
#define HELIO_LOG_ADD_SHOWN_(value) , HELIO_LOG_SHOWN_(value)
#define HELIO_LOG_VALUES_(...) HELIO_LOG_EACH_(HELIO_LOG_ADD_, __VA_ARGS__)
#define HELIO_LOG_ALL_SHOWN_(...) HELIO_LOG_EACH_(HELIO_LOG_ADD_SHOWN_, __VA_ARGS__)
#define HELIO_LOG_COUNT_(...) \
  HELIO_LOG_PICK_(__VA_ARGS__, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define HELIO_LOG_COUNT_ALL_(...) HELIO_LOG_COUNT_(__VA_ARGS__)
#define HELIO_LOG_PICK_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, count, ...) count
#define HELIO_LOG_PASTE_(a, b) a##b
#define HELIO_LOG_NAMED_(count) HELIO_LOG_PASTE_(HELIO_LOG_EACH_, count)
#define HELIO_LOG_EACH_(do_, ...) HELIO_LOG_NAMED_(HELIO_LOG_COUNT_(__VA_ARGS__))(do_, __VA_ARGS__)
#define HELIO_LOG_EACH_1(do_, text)
#define HELIO_LOG_EACH_2(do_, text, a) do_(a)
#define HELIO_LOG_EACH_3(do_, text, a, ...) do_(a) HELIO_LOG_EACH_2(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_4(do_, text, a, ...) do_(a) HELIO_LOG_EACH_3(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_5(do_, text, a, ...) do_(a) HELIO_LOG_EACH_4(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_6(do_, text, a, ...) do_(a) HELIO_LOG_EACH_5(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_7(do_, text, a, ...) do_(a) HELIO_LOG_EACH_6(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_8(do_, text, a, ...) do_(a) HELIO_LOG_EACH_7(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_9(do_, text, a, ...) do_(a) HELIO_LOG_EACH_8(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_10(do_, text, a, ...) do_(a) HELIO_LOG_EACH_9(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_11(do_, text, a, ...) do_(a) HELIO_LOG_EACH_10(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_12(do_, text, a, ...) do_(a) HELIO_LOG_EACH_11(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_13(do_, text, a, ...) do_(a) HELIO_LOG_EACH_12(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_14(do_, text, a, ...) do_(a) HELIO_LOG_EACH_13(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_15(do_, text, a, ...) do_(a) HELIO_LOG_EACH_14(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_16(do_, text, a, ...) do_(a) HELIO_LOG_EACH_15(do_, text, __VA_ARGS__)
#define HELIO_LOG_EACH_17(do_, text, a, ...) do_(a) HELIO_LOG_EACH_16(do_, text, __VA_ARGS__)

#endif
