// Starts a program many times and loads it once. Loading libtorch takes most of the time of a short command, so this
// library, preloaded (LD_PRELOAD), waits where `main` would begin and forks a process for every request: all that a
// program does from `main` on is done as ever, by the same file, with words, environment, folder and streams of its
// own.
//
// FORK_SERVER names a socket of whole messages. A request is "FOLDER\0COUNT\0" and so many words and then variables,
// each ended by \0, with four descriptors: stdin, stdout, stderr and one for the answers: the process number, and at
// its end the status as waitpid gives it, 4 bytes each. The server ends when the socket is closed.
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int(int, char**, char**);
using Start = int(Main*, int, char**, void (*)(), void (*)(), void (*)(), void*);

constexpr int kStreams = 3;
using Descriptors = std::array<int, kStreams + 1>;

struct Child {
  pid_t pid;
  int answers;
};

Main* program = nullptr;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  _exit(1);
}

void answer(int answers, int value) {
  if (write(answers, &value, sizeof value) < 0) return;  // nobody waits any more
}

std::vector<std::string> receive(int socket, Descriptors& fds) {
  constexpr std::size_t kMostBytes = 1 << 20;
  std::string request(kMostBytes, '\0');
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(Descriptors))> control;
  iovec part = {request.data(), request.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (bytes <= 0) _exit(0);
  const auto* head = CMSG_FIRSTHDR(&message);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || head == nullptr ||
      head->cmsg_len != CMSG_LEN(sizeof(Descriptors))) {
    die("a request");
  }
  std::memcpy(fds.data(), CMSG_DATA(head), sizeof(Descriptors));
  std::vector<std::string> strings;
  for (std::size_t at = 0; at < static_cast<std::size_t>(bytes); at += strings.back().size() + 1) {
    strings.emplace_back(request.data() + at);
  }
  return strings;
}

int become(std::vector<std::string>& strings, const Descriptors& fds) {
  const auto num_words = std::stoul(strings.at(1));
  std::vector<char*> words;
  std::vector<char*> variables;
  for (std::size_t i = 2; i < strings.size(); ++i) {
    (words.size() < num_words ? words : variables).push_back(strings[i].data());
  }
  words.push_back(nullptr);
  variables.push_back(nullptr);
  for (int i = 0; i < kStreams; ++i) dup2(fds.at(static_cast<std::size_t>(i)), i);
  close_range(kStreams, ~0U, 0);
  if (chdir(strings[0].c_str()) != 0) die(strings[0].c_str());
  environ = variables.data();
  // Of another library that is preloaded and is set by the environment.
  const auto begin = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "on_program_start"));
  if (begin != nullptr) begin();
  return program(static_cast<int>(num_words), words.data(), environ);
}

class Server {
 public:
  explicit Server(int socket) : watched_{{.fd = socket, .events = POLLIN, .revents = 0}}, children_(1) {}

  [[noreturn]] void run() {
    for (;;) {
      if (poll(watched_.data(), watched_.size(), -1) < 0 && errno != EINTR) die("poll");
      for (auto i = watched_.size() - 1; i > 0; --i) {
        if (watched_[i].revents != 0) end(i);
      }
      if (watched_[0].revents != 0) start();
    }
  }

 private:
  void start() {
    Descriptors fds{};
    auto strings = receive(watched_[0].fd, fds);
    const auto pid = fork();
    if (pid == 0) std::exit(become(strings, fds));
    if (pid < 0) die("fork");
    const auto answers = fds.back();
    for (const auto fd : fds) {
      if (fd != answers) close(fd);
    }
    answer(answers, pid);
    const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (process < 0) die("pidfd_open");
    watched_.push_back({.fd = process, .events = POLLIN, .revents = 0});
    children_.push_back({pid, answers});
  }

  void end(std::size_t index) {
    int status = 0;
    waitpid(children_[index].pid, &status, 0);
    answer(children_[index].answers, status);
    close(children_[index].answers);
    close(watched_[index].fd);
    watched_[index] = watched_.back();
    watched_.pop_back();
    children_[index] = children_.back();
    children_.pop_back();
  }

  std::vector<pollfd> watched_;  // the socket, and a descriptor of each process
  std::vector<Child> children_;  // of the same index; the first is none
};

int serve(int argc, char** argv, char** variables) {
  if (const char* socket = std::getenv("FORK_SERVER"); socket != nullptr) Server(std::atoi(socket)).run();
  return program(argc, argv, variables);
}

}  // namespace

extern "C" int __libc_start_main(Main* main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*loader_fini)(), void* stack) {
  program = main;
  const auto start = reinterpret_cast<Start*>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(serve, argc, argv, init, fini, loader_fini, stack);
}
