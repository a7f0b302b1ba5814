// Starts a program many times and loads it once. Loading libtorch takes most of the time of a short command, so this
// library, preloaded (LD_PRELOAD), waits where `main` would begin and forks a process for every request: all that a
// program does from `main` on is done as ever, by the same file, with words, environment, folder and streams of its own.
//
// FORK_SERVER names a socket of whole messages. A request is "FOLDER\0COUNT\0" and so many words and then variables, each
// ended by \0, with four descriptors: stdin, stdout, stderr and one for the answers: the process number, and at its end
// the status as waitpid gives it, 4 bytes each. The server ends when the socket is closed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMostBytes = 1 << 20, kMostStrings = 1 << 14, kMostChildren = 256, kStreams = 3, kDescriptors = 4 };

typedef int Main(int, char**, char**);
typedef int Start(Main*, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);

struct child {
  pid_t pid;
  int answers;
};

static Main* program;
static char request[kMostBytes];
static struct pollfd watched[1 + kMostChildren];  // the socket, and a descriptor of each process
static struct child children[1 + kMostChildren];
static int count = 1;
extern char** environ;

static void die(const char* what) {
  perror(what);
  _exit(1);
}

static void answer(int answers, int value) {
  if (write(answers, &value, sizeof value) != sizeof value) errno = 0;  // nobody waits any more
}

static int receive(int socket, int* fds) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int) * kDescriptors)];
  } control;
  struct iovec part = {request, sizeof request};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (bytes <= 0) _exit(0);
  struct cmsghdr* head = CMSG_FIRSTHDR(&message);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || !head || head->cmsg_len != CMSG_LEN(sizeof(int) * kDescriptors)) {
    die("a request");
  }
  memcpy(fds, CMSG_DATA(head), sizeof(int) * kDescriptors);
  return (int)bytes;
}

static int become(int bytes, const int* fds) {
  static char* strings[kMostStrings + 1];
  int found = 0;
  for (char* at = request; at < request + bytes && found < kMostStrings - 1; at += strlen(at) + 1) strings[found++] = at;
  const int words = atoi(strings[1]);
  memmove(strings + 3 + words, strings + 2 + words, sizeof(char*) * (size_t)(found - 2 - words));  // room for the words' end
  strings[2 + words] = NULL;
  for (int i = 0; i < kStreams; ++i) dup2(fds[i], i);
  close_range(kStreams, ~0U, 0);
  if (chdir(strings[0]) != 0) die(strings[0]);
  environ = strings + 3 + words;
  return program(words, strings + 2, environ);
}

static void start(int socket) {
  int fds[kDescriptors];
  const int bytes = receive(socket, fds);
  const pid_t pid = count <= kMostChildren ? fork() : -1;
  if (pid == 0) exit(become(bytes, fds));
  for (int i = 0; i < kStreams; ++i) close(fds[i]);
  if (pid < 0) die("fork");
  answer(fds[kStreams], pid);
  watched[count] = (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
  if (watched[count].fd < 0) die("pidfd_open");
  children[count++] = (struct child){pid, fds[kStreams]};
}

static void end(int index) {
  int status = 0;
  waitpid(children[index].pid, &status, 0);
  answer(children[index].answers, status);
  close(children[index].answers);
  close(watched[index].fd);
  --count;
  watched[index] = watched[count];
  children[index] = children[count];
}

static int serve(int argc, char** argv, char** variables) {
  const char* socket = getenv("FORK_SERVER");
  if (!socket) return program(argc, argv, variables);
  watched[0] = (struct pollfd){.fd = atoi(socket), .events = POLLIN};
  for (;;) {
    if (poll(watched, (nfds_t)count, -1) < 0 && errno != EINTR) die("poll");
    for (int i = count - 1; i > 0; --i) {
      if (watched[i].revents) end(i);
    }
    if (watched[0].revents) start(watched[0].fd);
  }
}

int __libc_start_main(Main* main, int argc, char** argv, void (*init)(void), void (*fini)(void), void (*loader_fini)(void),
                      void* stack) {
  program = main;
  return ((Start*)dlsym(RTLD_NEXT, "__libc_start_main"))(serve, argc, argv, init, fini, loader_fini, stack);
}
