// A wall clock that jumps, for any program: preloaded (LD_PRELOAD), it adds up to a day to what CLOCK_REALTIME says, or takes it away,
// by another amount every few calls. CLOCK_JUMPS is the seed; steady clocks are left alone.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed;
static atomic_ulong calls;

__attribute__((constructor)) static void on_program_start(void) {
  const char* text = getenv("CLOCK_JUMPS");
  seed = text ? strtoull(text, NULL, 10) : 0;
}

static int64_t jump(void) {
  uint64_t bits = seed * 0x9E3779B97F4A7C15u + (atomic_fetch_add(&calls, 1) / 7 + 1) * 0xBF58476D1CE4E5B9u;
  bits ^= bits >> 31;
  bits *= 0x94D049BB133111EBu;
  return (int64_t)((bits >> 20) % (2 * 86400 + 1)) - 86400;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return (int)result;
}

int gettimeofday(struct timeval* now, void* zone) {
  long result = syscall(SYS_gettimeofday, now, zone);
  if (result == 0 && now) now->tv_sec += jump();
  return (int)result;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
